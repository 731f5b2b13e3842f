#include <algorithm>
#include <functional>
#include <set>

#include "base/quantity.hpp"
#include "planner/evaluation.hpp"
#include "schedule/optimizer.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_changes = 3;
constexpr std::int64_t shortest_sequence = 512;

struct Candidate {
    std::string change;
    TrainingJob job;
    Cluster cluster;
    bool other_units = false;  ///< the repeated blocks instead of the plan's own units
};

struct Tried {
    std::string change;
    PlanResult result;
    double tokens_per_ns = 0.0;
};

int rank_of(const std::optional<bool>& fits) {
    return fits ? (*fits ? 2 : 0) : 1;
}

/// Optimizers that hold less while they step, or keep less.
void add_optimizers(const TrainingJob& job, const PlanResult& plan,
                    const std::function<void(std::string, const TrainingJob&)>& add) {
    const OptimizerInfo& info = optimizer(job.optimizer.kind);
    const auto propose = [&](const Optimizer& proposed) {
        TrainingJob other = job;
        other.optimizer = proposed;
        add("--optimizer " + name(proposed), other);
    };
    Optimizer fused{.kind = job.optimizer.kind, .implementation = Optimizer::Implementation::fused};
    const bool has_fused =
        std::ranges::find(info.implementations, fused.implementation) != info.implementations.end();
    if (has_fused && fused != job.optimizer && !info.smaller.empty() && plan.peak_phase == Phase::step) {
        propose(fused);
    }
    if (!info.smaller.empty()) {
        propose(parse_optimizer(info.smaller));
    }
}

/// What makes room, and where there is room already, what uses it.
std::vector<Candidate> candidates(const SweepQuestion& question, const ModelFacts& facts,
                                  const PlanResult& plan) {
    const TrainingJob& job = question.jobs[plan.job];
    std::vector<Candidate> out;
    const auto add = [&](std::string change, const TrainingJob& other) {
        out.push_back({.change = std::move(change), .job = other, .cluster = question.cluster});
    };
    TrainingJob other = job;
    if (plan.fits == true) {
        other.batch = job.batch * 2;
        add("--batch " + std::to_string(other.batch), other);
        other = job;
        if (job.activation_checkpointing.mode != ActivationCheckpointing::Mode::none) {
            other.activation_checkpointing = {};
            add("--activation-checkpointing none", other);
            other = job;
        }
        if (job.strategy == Strategy::full_shard && runtime(job.runtime).has_units && job.mesh.shard > 1) {
            other.strategy = Strategy::shard_grad_op;
            add("--strategy SHARD_GRAD_OP", other);
        }
        return out;
    }
    if (job.activation_checkpointing.mode == ActivationCheckpointing::Mode::none &&
        !facts.shape.blocks.empty()) {
        other.activation_checkpointing.mode = ActivationCheckpointing::Mode::blocks;
        add("--activation-checkpointing blocks", other);
        other = job;
    }
    if (job.loss.kind == Loss::Kind::cross_entropy && facts.shape.head) {
        other.loss.kind = Loss::Kind::chunked;
        add("--loss " + name(other.loss), other);
        other = job;
    }
    if (job.batch > 1) {
        other.batch = job.batch / 2;
        add("--batch " + std::to_string(other.batch), other);
        other = job;
    } else if (job.sequence / 2 >= shortest_sequence) {
        other.sequence = job.sequence / 2;
        add("--seq " + std::to_string(other.sequence), other);
        other = job;
    }
    if (!runtime(job.runtime).has_units) {
        other.runtime = "fsdp2";
        other.strategy = Strategy::full_shard;
        other.mesh = {.replicate = 1, .shard = question.cluster.gpus};
        out.push_back({"--runtime fsdp2 --policy blocks", other, question.cluster, true});
        return out;
    }
    if (job.strategy != Strategy::full_shard) {
        other.strategy = Strategy::full_shard;
        other.mesh = {.replicate = 1, .shard = question.cluster.gpus};
        add("--strategy FULL_SHARD", other);
        other = job;
    }
    if (!question.sweep_thresholds && !facts.shape.blocks.empty()) {
        out.push_back({"--policy blocks", job, question.cluster, true});
    }
    add_optimizers(job, plan, add);
    if (job.strategy == Strategy::full_shard && job.mesh.replicate == 1) {
        Candidate larger{.change = "--gpus " + std::to_string(2 * question.cluster.gpus),
                         .job = job,
                         .cluster = question.cluster};
        larger.cluster.gpus *= 2;
        larger.job.mesh.shard *= 2;
        out.push_back(std::move(larger));
    }
    return out;
}

PolicySpec blocks_policy(const ModuleTree& tree) {
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::module_classes;
    spec.classes = block_classes(tree);
    return spec;
}

std::string effect_of(const PlanResult& before, const Tried& tried, double tokens_per_ns) {
    const PlanResult& after = tried.result;
    const std::int64_t freed = before.process_bytes.value - after.process_bytes.value;
    std::string text =
        show_bytes(std::max(freed, -freed)) + (freed >= 0 ? " less" : " more") + " at the peak, ";
    if (!after.fits) {
        text += "may fit";
    } else if (*after.fits) {
        text += "fits with " + show_bytes(after.left_bytes) + " left";
    } else {
        text += "still does not fit";
    }
    const double ratio = tried.tokens_per_ns / tokens_per_ns;
    const auto percent =
        static_cast<int>(ratio >= 1.0 ? (ratio - 1.0) * 100.0 + 0.5 : (1.0 - ratio) * 100.0 + 0.5);
    if (percent >= 1) {
        text += ", about " + std::to_string(percent) + " % " + (ratio >= 1.0 ? "more" : "fewer") +
                " tokens a second";
    }
    return text;
}

double rate(const PlanResult& plan, const TrainingJob& job, std::int64_t gpus) {
    return static_cast<double>(job.tokens() * job.accumulate * gpus) /
           static_cast<double>(std::max<std::int64_t>(1, plan.step_ns.value));
}

}  // namespace

std::vector<Change> changes_for(const SweepQuestion& question, const ModelFacts& facts,
                                const PlanResult& plan) {
    const double now = rate(plan, question.jobs[plan.job], question.cluster.gpus);
    std::vector<Tried> tried;
    for (const Candidate& candidate : candidates(question, facts, plan)) {
        SweepQuestion other{.model = question.model,
                            .tree = question.tree,
                            .policy = candidate.other_units ? blocks_policy(question.tree) : question.policy,
                            .sweep_thresholds = false,
                            .wrap = question.wrap,
                            .jobs = {candidate.job},
                            .cluster = candidate.cluster};
        const WrapPlan units = candidate.other_units ? units_of(other, candidate.job) : plan.wrap;
        Tried one{.change = candidate.change,
                  .result = evaluate(evaluation_of(other, facts, candidate.job, candidate.cluster), units,
                                     candidate.job)};
        one.tokens_per_ns = rate(one.result, candidate.job, candidate.cluster.gpus);
        const std::int64_t freed = plan.process_bytes.value - one.result.process_bytes.value;
        const bool helps = plan.fits == true ? one.result.fits == true && one.tokens_per_ns > now
                                             : freed > question.cluster.budget.count / 100;
        if (helps) {
            tried.push_back(std::move(one));
        }
    }
    std::ranges::stable_sort(tried, [](const Tried& a, const Tried& b) {
        const int left = rank_of(a.result.fits);
        const int right = rank_of(b.result.fits);
        if (left != right) {
            return left > right;
        }
        return left == 2 ? a.tokens_per_ns > b.tokens_per_ns
                         : a.result.process_bytes.value < b.result.process_bytes.value;
    });
    std::vector<Change> changes;
    for (std::size_t i = 0; i < std::min(tried.size(), most_changes); ++i) {
        changes.push_back({tried[i].change, effect_of(plan, tried[i], now)});
    }
    return changes;
}

}  // namespace fsdplan
