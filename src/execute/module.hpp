#pragma once

#include "fsdplan/execute.hpp"

namespace fsdplan {

/// What a backend's module exports as `fsdplan_open_backend`. Null when it could not start; `reason` then
/// points to why, for the life of the module.
using OpenBackend = Backend* (*)(const char** reason);

}  // namespace fsdplan
