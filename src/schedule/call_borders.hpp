#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fsdplan/job.hpp"
#include "schedule/forward_program.hpp"

// What crosses the borders of units and of checkpointed regions in a forward. Everything is by call.
namespace fsdplan {

/// Checkpointed calls.
struct CheckpointedRegions {
    std::vector<std::int32_t> around;  ///< the outermost one around each call, itself included; -1: none
    // Per region, the first and the last leaf that saves anything: at the last one a recompute stops early.
    std::vector<std::int32_t> first_saved;
    std::vector<std::int32_t> last_saved;

    bool begins_at(std::int32_t call) const { return around[static_cast<std::size_t>(call)] == call; }
};
CheckpointedRegions checkpointed_regions(const ForwardProgram& program, const ModuleTree& tree,
                                         const ActivationCheckpointing& checkpointing);

/// Leaf calls inside that are read outside, and the other way; of calls of units and of regions.
struct CallBorders {
    std::vector<std::vector<std::int32_t>> results;
    std::vector<std::vector<std::int32_t>> sources;
};
/// `unit_of_call`: -1 where the call is no unit's.
CallBorders call_borders(const ForwardProgram& program, std::span<const std::int32_t> unit_of_call,
                         const CheckpointedRegions& regions);

}  // namespace fsdplan
