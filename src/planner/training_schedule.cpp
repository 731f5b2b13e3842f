#include "planner/training_schedule.hpp"

namespace fsdplan {

namespace {

/// The tree as autograd sees it where a unit's parameters are tracked together. Empty when every unit is of
/// one kind.
std::optional<ModuleTree> tracked_by_units(const ModuleTree& tree, const WrapPlan& plan) {
    std::optional<ModuleTree> out;
    for (const Unit& unit : plan.units) {
        for (const TensorIndex t : unit.parameters) {
            if (unit.requires_grad && !tree.tensors[at(t)].requires_grad) {
                if (!out) {
                    out = tree;
                }
                out->tensors[at(t)].requires_grad = true;
            }
        }
    }
    return out;
}

}  // namespace

OperatorGraph operators_for(const ModelGraph& model, const ModuleTree& tree, const TrainingJob& job,
                            const Gpu& gpu) {
    const bool shifts = job.loss.kind == Loss::Kind::shifted;
    if (!model.operators || (job.loss.kind != Loss::Kind::cross_entropy && !shifts)) {
        return {};
    }
    Workload workload{.batch = job.batch,
                      .sequence = job.sequence,
                      .target_sequence = job.target_sequence,
                      .compute = job.param_dtype,
                      .shifts_logits = shifts};
    if (gpu.sm_count > 0) {
        workload.multiprocessors = gpu.sm_count;
    }
    OperatorGraph graph = model.operators(tree, workload);
    // A loss that the user's loop works out is not transformers'.
    return shifts && !graph.loss_in_model ? OperatorGraph{} : graph;
}

Schedule schedule_with_work(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job,
                            const TrainingRun& run) {
    OperatorGraph own;
    const OperatorGraph* operators = &about.operators;
    if (runtime(job.runtime).tracks_whole_units && !operators->calls.empty()) {
        if (const std::optional<ModuleTree> tracked = tracked_by_units(about.tree, plan)) {
            own = operators_for(about.model, *tracked, job, about.cluster.gpu);
            operators = &own;
        }
    }
    return lower({.tree = about.tree,
                  .plan = plan,
                  .job = job,
                  .work = about.work.rows,
                  .loss = about.work.loss,
                  .operators = operators->calls.empty() ? nullptr : operators,
                  .workspace_bytes = about.cluster.gpu.cublas_workspace_bytes,
                  .input_bytes = run.input_bytes,
                  .rank = run.rank,
                  .iterations = run.iterations});
}

Schedule training_schedule(const ModelGraph& model, const ModuleTree& tree, const WrapPlan& plan,
                           const TrainingJob& job, const Cluster& cluster, const TrainingRun& run) {
    const ModelFacts facts = facts_of(model, tree);
    const SweepQuestion question{.model = model, .tree = tree, .policy = {}, .cluster = cluster};
    return schedule_with_work(evaluation_of(question, facts, job, cluster), plan, job, run);
}

}  // namespace fsdplan
