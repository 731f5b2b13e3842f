#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fsdplan/planner.hpp"

// What the reports of one simulated step have in common.
namespace fsdplan {

/// A collective as it ran.
struct CollectiveRow {
    std::int32_t op = -1;
    const CollectiveCall* call = nullptr;
    std::int64_t start_ns = 0;  ///< from the beginning of the iteration
    std::int64_t end_ns = 0;
    std::int64_t exposed_ns = 0;  ///< that compute stood still because of it
    Cause cause = Cause::gather;  ///< of the longest such pause
};
/// Of the last iteration, in the order of issue.
std::vector<CollectiveRow> collective_rows(const Schedule& schedule, const Run& run);

/// Pauses of compute in the last iteration, by cause, the longest first.
struct CauseSum {
    Cause cause = Cause::gather;
    std::int64_t ns = 0;
    std::int64_t count = 0;
};
std::vector<CauseSum> cause_sums(const Schedule& schedule, const Run& run);

/// Begin of the last iteration in the run's time, and its first operation.
struct LastIteration {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int64_t first_op = 0;
};
LastIteration last_iteration(const Schedule& schedule, const Run& run);

/// Buffers alive at the peak, alike ones together, the largest first.
struct LiveRow {
    Category category{};
    std::string owner;       ///< module or unit, its numbers as `*` where several are together
    std::int64_t bytes = 0;  ///< of all of them
    std::int64_t count = 0;
};
std::vector<LiveRow> live_rows(const Schedule& schedule, const MemoryProfile& memory, const ModuleTree& tree);

/// A point of the memory timeline.
struct MemoryPoint {
    std::int64_t time_ns = 0;  ///< at which the host gets there, from its first operation of the iteration
    std::int32_t op = -1;
    std::string where;  ///< "forward of model.layers.3"
    std::array<std::int64_t, category_count> by_category{};
    std::int64_t allocated_bytes = 0;
    std::int64_t reserved_bytes = 0;
};
/// The last iteration at its unit borders, loss and optimizer step.
std::vector<MemoryPoint> memory_points(const Schedule& schedule, const Run& run);

/// "backward of model.layers.3, allocation of gradients" for an operation.
std::string shown_op(const Schedule& schedule, std::int32_t op);

}  // namespace fsdplan
