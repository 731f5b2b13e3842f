#pragma once

#include <cstdint>
#include <optional>

#include "fsdplan/wrap.hpp"

namespace fsdplan {

/// What fully_shard says to reshard_after_forward=ranks where `shard` ranks share a parameter, if it refuses.
std::optional<Diagnostic> refused_reshard(std::int64_t ranks, std::int64_t shard);

}  // namespace fsdplan
