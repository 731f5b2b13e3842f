#pragma once

#include "fsdplan/simulate.hpp"
#include "planner/evaluation.hpp"

namespace fsdplan {

/// A plan's schedule and what happens to it.
struct SimulatedPlan {
    Schedule schedule;
    Run run;
};

/// What a job's operations are priced with.
Pricing pricing_of(const TrainingJob& job);

/// Plays a plan on a device that never runs out of memory, so that what it needs can be said.
SimulatedPlan simulate_plan(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job);

}  // namespace fsdplan
