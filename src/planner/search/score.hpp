#pragma once

#include <cstdint>

#include "fsdplan/simulate.hpp"
#include "planner/evaluation.hpp"

namespace fsdplan {

/// What a search compares plans by: the simulator's own clock, and what the program holds.
struct Score {
    std::int64_t step_ns = 0;
    std::int64_t allocated_bytes = 0;  ///< at the peak
    std::int64_t operations = 0;       ///< of the schedule: what the simulation cost
};

/// One plan's schedule with the times of its operations.
struct Played {
    Schedule schedule;
    OpTimes times;  ///< as priced, without what kernels lose to collectives
    Timeline timeline;
};

/// Plays two iterations, the second of which is like all that follow.
Played play_plan(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job);

/// The same step as PlanResult::step_ns.value has, without intervals and allocator.
Score score_of(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job);

}  // namespace fsdplan
