#include <array>

#include "planner/simulated.hpp"

namespace fsdplan {

Mesh usual_mesh(const RuntimeInfo& runtime, Strategy strategy, const Cluster& cluster) {
    if (!runtime.has_units) {
        return {.replicate = cluster.gpus, .shard = 1};
    }
    if (is_hybrid(strategy)) {
        return {.replicate = cluster.nodes(), .shard = cluster.gpus_per_node};
    }
    return {.replicate = 1, .shard = cluster.gpus};
}

std::vector<StrategyTraffic> compare_strategies(const SweepQuestion& question, const WrapPlan& plan,
                                                const TrainingJob& job) {
    std::vector<StrategyTraffic> out;
    const auto add = [&](const TrainingJob& other, std::string label) {
        // The second iteration is like all that follow.
        std::vector<Collective> traffic =
            traffic_of(lower({.tree = question.tree, .plan = plan, .job = other, .iterations = 2}));
        const std::int64_t bytes = sent_bytes(traffic);
        out.push_back({std::move(label), bytes, std::move(traffic)});
    };
    const RuntimeInfo& info = runtime(job.runtime);
    if (info.has_units) {
        for (const Strategy strategy :
             {Strategy::full_shard, Strategy::shard_grad_op, Strategy::hybrid_shard}) {
            if (is_hybrid(strategy) && question.cluster.nodes() < 2) {
                continue;
            }
            TrainingJob other = job;
            other.strategy = strategy;
            other.reshard_after_forward.reset();
            other.mesh = strategy == job.strategy ? job.mesh : usual_mesh(info, strategy, question.cluster);
            add(other, std::string(name(strategy)));
        }
    }
    const RuntimeInfo& whole = runtime("ddp");
    TrainingJob other = job;
    other.runtime = whole.name;
    other.strategy = whole.strategies.front();
    other.mesh = usual_mesh(whole, other.strategy, question.cluster);
    add(other, "DDP");
    return out;
}

}  // namespace fsdplan
