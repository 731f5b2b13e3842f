#pragma once

#include <cstdint>
#include <optional>

#include "fsdplan/wrap.hpp"

namespace fsdplan {

/// reshard_after_forward of one call where it is not the job's: 0 for False, 1 for True, else a number of
/// ranks.
std::optional<std::int64_t> own_reshard(const Unit& unit);

/// What fully_shard says to reshard_after_forward=ranks where `shard` ranks share a parameter, if it refuses.
std::optional<Diagnostic> refused_reshard(std::int64_t ranks, std::int64_t shard);

}  // namespace fsdplan
