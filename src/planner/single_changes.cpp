#include "planner/single_changes.hpp"

#include <algorithm>
#include <functional>

#include "schedule/optimizer.hpp"

namespace fsdplan {
namespace {

using Mode = ActivationCheckpointing::Mode;
using For = SingleChange::For;

constexpr std::int64_t shortest_sequence = 512;

PolicySpec classes_policy(std::vector<std::string> classes) {
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::module_classes;
    spec.classes = std::move(classes);
    return spec;
}

/// Classes of the modules inside the first block that hold several parameters.
std::vector<std::string> parts_of_blocks(const ModuleTree& tree) {
    const ClassSet blocks(tree, block_classes(tree));
    for (std::size_t m = 0; m < tree.size(); ++m) {
        if (!blocks.matches(tree, static_cast<ModuleIndex>(m))) {
            continue;
        }
        std::vector<std::string> classes;
        for (const ModuleIndex child : tree.children(static_cast<ModuleIndex>(m))) {
            const std::string& name = tree.class_info(child).name;
            const bool inner = !tree.children(child).empty() && tree.numel[at(child)] > 0;
            if (inner && std::ranges::find(classes, name) == classes.end()) {
                classes.push_back(name);
            }
        }
        return classes;
    }
    return {};
}

std::string class_option(const std::vector<std::string>& classes) {
    std::string text;
    for (const std::string& c : classes) {
        text += (text.empty() ? "--policy class:" : ",") + std::string(short_name(c));
    }
    return text;
}

class Changes {
public:
    Changes(const SweepQuestion& question, const ModelFacts& facts, const PlanResult& plan)
        : question_(question), facts_(facts), job_(question.jobs[plan.job]) {}

    std::vector<SingleChange> all() {
        work();
        recomputation();
        optimizers();
        if (runtime(job_.runtime).has_units) {
            sharding();
            units();
        } else {
            whole_model();
        }
        return std::move(out_);
    }

private:
    void add(std::string change, For purpose, const std::function<void(TrainingJob&)>& set,
             std::string side_effect = {}) {
        SingleChange one{.change = std::move(change),
                         .job = job_,
                         .cluster = question_.cluster,
                         .purpose = purpose,
                         .side_effect = std::move(side_effect)};
        set(one.job);
        out_.push_back(std::move(one));
    }

    void work() {
        add(
            "--batch " + std::to_string(2 * job_.batch), For::speed, [](TrainingJob& job) { job.batch *= 2; },
            "twice the sequences a step");
        if (job_.batch > 1) {
            add(
                "--batch " + std::to_string(job_.batch / 2), For::room,
                [](TrainingJob& job) { job.batch /= 2; }, "half the sequences a step");
        } else if (job_.sequence / 2 >= shortest_sequence) {
            add(
                "--seq " + std::to_string(job_.sequence / 2), For::room,
                [](TrainingJob& job) { job.sequence /= 2; }, "shorter sequences");
        }
        if (job_.loss.kind == Loss::Kind::cross_entropy && facts_.shape.head) {
            Loss chunked = job_.loss;
            chunked.kind = Loss::Kind::chunked;
            add(
                "--loss " + name(chunked), For::room, [&](TrainingJob& job) { job.loss = chunked; },
                "another loss function in the training loop");
        }
    }

    void recomputation() {
        const auto checkpoint = [&](Mode mode, int every) {
            ActivationCheckpointing other = job_.activation_checkpointing;
            other.mode = mode;
            other.every = every;
            other.modules.clear();
            add("--activation-checkpointing " + name(other), mode == Mode::none ? For::speed : For::room,
                [&](TrainingJob& job) { job.activation_checkpointing = other; });
        };
        const bool none = job_.activation_checkpointing == ActivationCheckpointing{};
        if (!none) {
            checkpoint(Mode::none, 1);
        }
        if (job_.activation_checkpointing.mode != Mode::blocks && !facts_.shape.blocks.empty()) {
            if (none) {
                checkpoint(Mode::every, 2);
                if (question_.model.operators) {
                    checkpoint(Mode::selective, 1);
                }
            }
            checkpoint(Mode::blocks, 1);
        }
    }

    /// Those that hold less while they step, or keep less.
    void optimizers() {
        const OptimizerInfo& info = optimizer(job_.optimizer.kind);
        const auto propose = [&](const Optimizer& proposed, std::string side_effect) {
            add(
                "--optimizer " + name(proposed), For::room,
                [&](TrainingJob& job) { job.optimizer = proposed; }, std::move(side_effect));
        };
        const Optimizer fused{.kind = job_.optimizer.kind,
                              .implementation = Optimizer::Implementation::fused};
        const bool has_fused =
            std::ranges::find(info.implementations, fused.implementation) != info.implementations.end();
        if (has_fused && fused != job_.optimizer) {
            propose(fused, "");
        }
        if (!info.smaller.empty()) {
            propose(parse_optimizer(info.smaller), "states in fewer bits");
        }
    }

    void sharding() {
        const std::int64_t gpus = question_.cluster.gpus;
        const auto full = [&](TrainingJob& job) {
            job.strategy = Strategy::full_shard;
            job.mesh = {.replicate = 1, .shard = gpus};
        };
        if (job_.strategy != Strategy::full_shard) {
            add("--strategy FULL_SHARD", For::room, full);
        } else if (job_.mesh.shard > 1) {
            add("--strategy SHARD_GRAD_OP", For::speed,
                [](TrainingJob& job) { job.strategy = Strategy::shard_grad_op; });
            if (question_.cluster.nodes() > 1) {
                add("--strategy HYBRID_SHARD", For::speed, [&](TrainingJob& job) {
                    job.strategy = Strategy::hybrid_shard;
                    job.mesh = usual_mesh(runtime(job.runtime), job.strategy, question_.cluster);
                });
            }
        }
        if (!job_.offload) {
            add(
                "--offload", For::room, [](TrainingJob& job) { job.offload = true; },
                "the optimizer steps on the host, which is not timed here");
        }
        if (job_.strategy == Strategy::full_shard && job_.mesh.replicate == 1) {
            add(
                "--gpus " + std::to_string(2 * gpus), For::room,
                [](TrainingJob& job) { job.mesh.shard *= 2; }, "twice the GPUs");
            out_.back().cluster.gpus *= 2;
        }
    }

    void units() {
        if (question_.sweep_thresholds || facts_.shape.blocks.empty()) {
            return;
        }
        const auto same_job = [](TrainingJob& /*job*/) {};
        const std::vector<std::string> blocks = block_classes(question_.tree);
        add("--policy blocks", For::room, same_job);
        out_.back().units = classes_policy(blocks);
        std::vector<std::string> smaller = parts_of_blocks(question_.tree);
        if (!smaller.empty()) {
            smaller.insert(smaller.begin(), blocks.begin(), blocks.end());
            add(class_option(smaller), For::room, same_job, "smaller units");
            out_.back().units = classes_policy(std::move(smaller));
        }
        add("--policy none", For::speed, same_job, "one unit: nothing overlaps");
        out_.back().units = PolicySpec{};
    }

    void whole_model() {
        add("--runtime fsdp2 --policy blocks", For::room, [&](TrainingJob& job) {
            job.runtime = "fsdp2";
            job.strategy = Strategy::full_shard;
            job.mesh = {.replicate = 1, .shard = question_.cluster.gpus};
        });
        out_.back().units = classes_policy(block_classes(question_.tree));
    }

    const SweepQuestion& question_;
    const ModelFacts& facts_;
    const TrainingJob& job_;
    std::vector<SingleChange> out_;
};

}  // namespace

std::vector<SingleChange> single_changes(const SweepQuestion& question, const ModelFacts& facts,
                                         const PlanResult& plan) {
    return Changes(question, facts, plan).all();
}

double tokens_per_ns(const PlanResult& plan, const TrainingJob& job, std::int64_t gpus) {
    return static_cast<double>(job.tokens() * job.accumulate * gpus) /
           static_cast<double>(std::max<std::int64_t>(1, plan.step_ns.value));
}

ChangedPlan with_change(const SweepQuestion& question, const ModelFacts& facts, const PlanResult& plan,
                        const SingleChange& change) {
    SweepQuestion other = question;
    other.jobs = {change.job};
    other.cluster = change.cluster;
    other.sweep_thresholds = false;
    if (change.units) {
        other.policy = *change.units;
    }
    const WrapPlan units = change.units ? units_of(other, change.job) : plan.wrap;
    ChangedPlan out{.result =
                        evaluate(evaluation_of(other, facts, change.job, change.cluster), units, change.job)};
    out.tokens_per_ns = tokens_per_ns(out.result, change.job, change.cluster.gpus);
    return out;
}

}  // namespace fsdplan
