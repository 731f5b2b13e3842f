#include "planner/training_schedule.hpp"

namespace fsdplan {

Schedule schedule_with_work(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job,
                            const TrainingRun& run) {
    return lower({.tree = about.tree,
                  .plan = plan,
                  .job = job,
                  .work = about.work.rows,
                  .loss = about.work.loss,
                  .operators = about.operators.calls.empty() ? nullptr : &about.operators,
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
