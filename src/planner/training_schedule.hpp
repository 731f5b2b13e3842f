#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "planner/evaluation.hpp"

namespace fsdplan {

/// What a lowering is told beside the plan and the job.
struct TrainingRun {
    int iterations = 2;
    std::span<const std::int64_t> input_bytes{};  ///< see LoweringInput
    std::optional<std::int64_t> rank{};
};

/// The tree as autograd sees it where a unit's parameters are tracked together. Empty when every unit is of
/// one kind.
std::optional<ModuleTree> tracked_by_units(const ModuleTree& tree, const WrapPlan& plan);

/// What a job asks of the model's operators.
Workload workload_of(const ModuleTree& tree, const TrainingJob& job, const Gpu& gpu);

/// What the model computes in this job, where it is described; the closed formulas answer the rest.
OperatorGraph operators_for(const ModelGraph& model, const ModuleTree& tree, const TrainingJob& job,
                            const Gpu& gpu);

/// The training of a plan with what the user's own computation costs and holds.
Schedule schedule_with_work(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job,
                            const TrainingRun& run);

/// The same from the beginning: the only place that a caller without an Evaluation needs.
Schedule training_schedule(const ModelGraph& model, const ModuleTree& tree, const WrapPlan& plan,
                           const TrainingJob& job, const Cluster& cluster, const TrainingRun& run);

}  // namespace fsdplan
