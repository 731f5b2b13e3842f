#pragma once

#include "base/json.hpp"
#include "verify/published/row.hpp"

namespace fsdplan::published {

/// The source whose file this is; null: none that is known here.
const PublishedSource* source_of(const json::Value& file);

}  // namespace fsdplan::published
