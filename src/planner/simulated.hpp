#pragma once

#include <vector>

#include "fsdplan/simulate.hpp"
#include "planner/evaluation.hpp"

namespace fsdplan {

/// A plan's schedule and what happens to it.
struct SimulatedPlan {
    Schedule schedule;
    Run run;
};

/// Plays a plan on a device that never runs out of memory, so that what it needs can be said.
SimulatedPlan simulate_plan(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job);

/// Collectives of the last iteration, equal ones counted together in the order in which they first occur.
std::vector<Collective> traffic_of(const Schedule& schedule);
std::int64_t sent_bytes(const std::vector<Collective>& collectives);

}  // namespace fsdplan
