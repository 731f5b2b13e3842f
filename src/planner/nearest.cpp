#include <algorithm>
#include <functional>

#include "base/quantity.hpp"
#include "planner/evaluation.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t shortest_sequence = 128;
constexpr std::int64_t most_proposed_gpus = 65'536;

struct Trial {
    std::string change;
    TrainingJob job;
    Cluster cluster;
};

PlanResult tried(const SweepQuestion& question, const ModelFacts& facts, const WrapPlan& units,
                 const Trial& trial) {
    SweepQuestion other = question;
    other.cluster = trial.cluster;
    return evaluate(evaluation_of(other, facts, trial.job, trial.cluster), units, trial.job);
}

}  // namespace

std::vector<Change> nearest_that_fit(const SweepQuestion& question, const ModelFacts& facts,
                                     const PlanResult& plan) {
    const TrainingJob& job = question.jobs[plan.job];
    std::vector<Change> out;
    // One kind of change, more and more of it, until the plan fits; `next` says false when there is no more.
    const auto try_kind = [&](const std::function<bool(Trial&)>& next) {
        Trial trial{.change = {}, .job = job, .cluster = question.cluster};
        while (next(trial)) {
            const PlanResult result = tried(question, facts, plan.wrap, trial);
            if (result.fits == true) {
                out.push_back({trial.change, "fits with " + show_bytes(result.left_bytes) + " left, " +
                                                 show_duration(result.step_ns.value) + " a step"});
                return;
            }
        }
    };
    try_kind([](Trial& trial) {
        const bool more = trial.job.batch > 1;
        trial.job.batch /= 2;
        trial.change = "--batch " + std::to_string(trial.job.batch);
        return more;
    });
    const bool fewer_sequences_fit = !out.empty();
    try_kind([&](Trial& trial) {
        trial.job.batch = 1;
        trial.job.sequence /= 2;
        trial.change =
            std::string(job.batch > 1 ? "--batch 1 " : "") + "--seq " + std::to_string(trial.job.sequence);
        return !fewer_sequences_fit && trial.job.sequence >= shortest_sequence;
    });
    if (runtime(job.runtime).has_units && !is_hybrid(job.strategy)) {
        try_kind([](Trial& trial) {
            trial.cluster.gpus *= 2;
            trial.job.mesh.shard *= 2;
            trial.change = "--gpus " + std::to_string(trial.cluster.gpus);
            return trial.cluster.gpus <= most_proposed_gpus;
        });
    }
    if (runtime(job.runtime).has_units && !job.offload) {
        try_kind([](Trial& trial) {
            const bool first = !trial.job.offload;
            trial.job.offload = true;
            trial.change = "--offload";
            return first;
        });
    }
    return out;
}

}  // namespace fsdplan
