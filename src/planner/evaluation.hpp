#pragma once

#include "fsdplan/operators.hpp"
#include "planner/estimates.hpp"
#include "planner/work.hpp"

namespace fsdplan {

/// What the plans of one job share, so that it is estimated once.
struct Evaluation {
    const ModelGraph& model;
    const ModuleTree& tree;
    const ModelFacts& facts;
    const Cluster& cluster;
    Activations activations;
    LossBytes loss;
    ModelWork work;
    /// What the model computes, where it is known; without calls: it is not.
    OperatorGraph operators;
};
/// `question.tree`, `facts` and `cluster` must outlive the result.
Evaluation evaluation_of(const SweepQuestion& question, const ModelFacts& facts, const TrainingJob& job,
                         const Cluster& cluster);

/// The same for another job on the same cluster that asks the same of the model's operators, which are not
/// worked out again.
Evaluation evaluation_like(const Evaluation& known, const TrainingJob& job);

PlanResult evaluate(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job);

/// What a plan is, in words.
std::string label_of(const ModuleTree& tree, const WrapPlan& plan);

/// What PyTorch refuses about a plan; nullptr when it runs.
const Diagnostic* refusal(const WrapPlan& plan);

/// Whether a plan fits, and what decides that; without what to do next.
Verdict verdict_of(const PlanResult& plan, std::int64_t budget);

/// Python that draws these boundaries; `threshold` is the interval of min_num_params when there is one.
PlanCode code_of(const SweepQuestion& question, const PlanResult& plan, const TrainingJob& job);

/// Traffic of the same units under other strategies.
std::vector<StrategyTraffic> compare_strategies(const SweepQuestion& question, const WrapPlan& plan,
                                                const TrainingJob& job);

/// What to change next about a plan, most useful first.
std::vector<Change> changes_for(const SweepQuestion& question, const ModelFacts& facts,
                                const PlanResult& plan);

/// For a plan that does not fit: the least of each kind of change that makes it fit.
std::vector<Change> nearest_that_fit(const SweepQuestion& question, const ModelFacts& facts,
                                     const PlanResult& plan);

}  // namespace fsdplan
