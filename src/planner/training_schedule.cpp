#include "planner/training_schedule.hpp"

namespace fsdplan {

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

namespace {

std::int64_t multiprocessors_of(const Gpu& gpu) {
    return gpu.sm_count > 0 ? gpu.sm_count : Workload{}.multiprocessors;
}

}  // namespace

Workload workload_of(const ModuleTree& tree, const TrainingJob& job, const Gpu& gpu) {
    return {.batch = job.batch,
            .sequence = job.sequence,
            .target_sequence = job.target_sequence,
            .compute = job.param_dtype,
            .multiprocessors = multiprocessors_of(gpu),
            .attention = job.attention,
            .loss = job.loss,
            .input_gradients = job.activation_checkpointing.by_model(tree)};
}

OperatorGraph operators_for(const ModelGraph& model, const ModuleTree& tree, const TrainingJob& job,
                            const Gpu& gpu) {
    if (!model.operators || job.loss.kind == Loss::Kind::none) {
        return {};
    }
    OperatorGraph graph = model.operators(tree, workload_of(tree, job, gpu));
    // A loss that the user's loop works out is not transformers'.
    return job.loss.kind == Loss::Kind::shifted && !graph.loss_in_model ? OperatorGraph{} : graph;
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
                  .multiprocessors = multiprocessors_of(about.cluster.gpu),
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
