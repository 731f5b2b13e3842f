#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/evaluation.hpp"

namespace fsdplan {

/// One thing done otherwise, as the command line says it.
struct SingleChange {
    enum class For : std::uint8_t { room, speed };
    std::string change;
    TrainingJob job;
    Cluster cluster;
    For purpose = For::room;
    std::string side_effect{};          ///< beside time and memory; empty: none
    std::optional<PolicySpec> units{};  ///< other ones than the plan's
};

/// What makes room for a plan, and what uses the room that there is.
std::vector<SingleChange> single_changes(const SweepQuestion& question, const ModelFacts& facts,
                                         const PlanResult& plan);

/// The plan with a change, and what a GPU gets done then.
struct ChangedPlan {
    PlanResult result;
    double tokens_per_ns = 0.0;  ///< of all GPUs
};
ChangedPlan with_change(const SweepQuestion& question, const ModelFacts& facts, const PlanResult& plan,
                        const SingleChange& change);
double tokens_per_ns(const PlanResult& plan, const TrainingJob& job, std::int64_t gpus);

}  // namespace fsdplan
