#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fsdplan/schedule.hpp"

// What PyTorch's FSDPMemTracker would count of a schedule.
namespace fsdplan {

/// The tracker's categories, in its order.
enum class TrackerCategory : std::uint8_t {
    sharded_param,
    unsharded_param,
    buffer,
    sharded_grad,
    unsharded_grad,
    activation,
    temp,
    all_gather,
    reduce_scatter,
    optimizer_state,
    inputs,
};
constexpr std::size_t tracker_category_count = 11;
/// "Sharded Param", …
std::string_view name(TrackerCategory category);

/// Bytes by TrackerCategory.
struct TrackerSnapshot {
    std::array<std::int64_t, tracker_category_count> bytes{};

    std::int64_t total() const;
};

struct TrackedIteration {
    TrackerSnapshot peak;
    TrackerSnapshot after_backward;  ///< and before the optimizer's step
};

/// Where the tracker's hooks stand to what happens.
struct TrackerHooks {
    /// Checkpoints are around units, whose forward hooks then run in the recomputation.
    bool recompute_units = false;
    /// Gathers of set_modules_to_backward_prefetch come when the unit's own pre-backward is over.
    bool explicit_backward_prefetch = false;
};

/// One entry an iteration, of a job of FSDP2 on the CPU: there is one memory, so that what a GPU would keep
/// in the host's counts with the rest.
///
/// Source: torch/distributed/_tools/fsdp2_mem_tracker.py of PyTorch 2.13.
std::vector<TrackedIteration> tracked_iterations(const Schedule& schedule, const TrackerHooks& hooks);

}  // namespace fsdplan
