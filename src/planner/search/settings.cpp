#include "planner/search/settings.hpp"

#include <algorithm>
#include <set>

#include "planner/evaluation.hpp"
#include "schedule/optimizer.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_meshes = 8;

using Jobs = std::vector<TrainingJob>;

/// Each job with each of its variants.
template <typename Variants>
Jobs each_with(const Jobs& jobs, const Variants& variants_of) {
    Jobs out;
    for (const TrainingJob& job : jobs) {
        for (TrainingJob& variant : variants_of(job)) {
            out.push_back(std::move(variant));
        }
    }
    return out;
}

TrainingJob with_first_blocks(const TrainingJob& job, const ModuleTree& tree,
                              std::span<const ModuleIndex> blocks) {
    TrainingJob out = job;
    out.activation_checkpointing.mode = ActivationCheckpointing::Mode::none;
    out.activation_checkpointing.modules.clear();
    for (const ModuleIndex block : blocks) {
        out.activation_checkpointing.modules.push_back(tree.path(block));
    }
    return out;
}

std::vector<ModuleIndex> blocks_of(const TrainingJob& job, const ModuleTree& tree) {
    TrainingJob all = job;
    all.activation_checkpointing.mode = ActivationCheckpointing::Mode::blocks;
    all.activation_checkpointing.modules.clear();
    return all.activation_checkpointing.regions(tree);
}

/// Full sharding, and groups of each size that divides the ranks: the larger ones, which need less.
Jobs with_meshes(const SearchQuestion& question, const TrainingJob& job) {
    const RuntimeInfo& info = runtime(job.runtime);
    const std::int64_t gpus = question.question.cluster.gpus;
    Jobs out;
    const auto add = [&](Strategy strategy, std::int64_t shard) {
        if (std::ranges::find(info.strategies, strategy) == info.strategies.end()) {
            return;
        }
        TrainingJob other = job;
        other.strategy = strategy;
        other.mesh = {.replicate = gpus / shard, .shard = shard};
        out.push_back(std::move(other));
    };
    // FSDP2 says with reshard_after_forward, unit by unit, what these strategies say for all.
    const bool by_strategy = info.wraps_by_policy && question.free.reshard;
    add(Strategy::full_shard, gpus);
    if (by_strategy) {
        add(Strategy::shard_grad_op, gpus);
    }
    for (std::int64_t shard = gpus / 2; shard >= 2 && out.size() < most_meshes; --shard) {
        if (gpus % shard == 0) {
            add(Strategy::hybrid_shard, shard);
            if (by_strategy) {
                add(Strategy::hybrid_shard_zero2, shard);
            }
        }
    }
    return out;
}

/// fully_shard may leave a node's share of the parameters after forward, so that backward gathers within
/// nodes.
Jobs with_node_reshard(const SearchQuestion& question, const TrainingJob& job) {
    const std::int64_t node = question.question.cluster.gpus_per_node;
    Jobs out{job};
    if (!job.reshard_after_forward && node > 1 && job.mesh.shard > node && job.mesh.shard % node == 0) {
        out.push_back(job);
        out.back().reshard_after_forward = node;
    }
    return out;
}

Jobs with_checkpointing(const SearchQuestion& question, const TrainingJob& job) {
    using Mode = ActivationCheckpointing::Mode;
    Jobs out;
    const auto add = [&](Mode mode) {
        TrainingJob other = job;
        other.activation_checkpointing.mode = mode;
        other.activation_checkpointing.modules.clear();
        out.push_back(std::move(other));
    };
    add(Mode::none);
    const ModuleTree& tree = question.question.tree;
    const std::vector<ModuleIndex> blocks = blocks_of(job, tree);
    if (blocks.empty()) {
        return out;
    }
    // The first blocks: their backward comes last, when the others' activations are gone.
    const std::size_t parts = blocks.size() >= 16 ? 8 : 4;
    for (std::size_t part = 1; part < parts && blocks.size() >= parts; ++part) {
        out.push_back(with_first_blocks(job, tree, std::span(blocks).first(blocks.size() * part / parts)));
    }
    if (question.question.model.operators) {
        add(Mode::selective);
    }
    add(Mode::blocks);
    return out;
}

Jobs with_batches(const TrainingJob& job) {
    const std::int64_t sequences = job.batch * job.accumulate;
    Jobs out;
    for (std::int64_t batch = sequences; batch >= 1; --batch) {
        if (sequences % batch == 0) {
            TrainingJob other = job;
            other.batch = batch;
            other.accumulate = sequences / batch;
            out.push_back(std::move(other));
        }
    }
    return out;
}

TrainingJob with_fused(const TrainingJob& job) {
    const std::span<const Optimizer::Implementation> known = optimizer(job.optimizer.kind).implementations;
    TrainingJob out = job;
    if (std::ranges::find(known, Optimizer::Implementation::fused) != known.end()) {
        out.optimizer.implementation = Optimizer::Implementation::fused;
    }
    return out;
}

}  // namespace

std::vector<TrainingJob> jobs_to_search(const SearchQuestion& question) {
    Jobs jobs = question.question.jobs;
    if (question.free.batch) {
        jobs = each_with(jobs, [](const TrainingJob& job) { return with_batches(job); });
    }
    if (question.free.optimizer) {
        jobs = each_with(jobs, [](const TrainingJob& job) { return Jobs{with_fused(job)}; });
    }
    if (question.free.mesh && runtime(question.question.jobs.front().runtime).has_units) {
        jobs = each_with(jobs, [&](const TrainingJob& job) { return with_meshes(question, job); });
    }
    if (question.free.reshard && !runtime(question.question.jobs.front().runtime).wraps_by_policy) {
        jobs = each_with(jobs, [&](const TrainingJob& job) { return with_node_reshard(question, job); });
    }
    if (question.free.checkpointing) {
        jobs = each_with(jobs, [&](const TrainingJob& job) { return with_checkpointing(question, job); });
    }
    return jobs;
}

std::vector<CheckpointRange> checkpoint_ranges(const std::vector<TrainingJob>& jobs, const ModuleTree& tree) {
    std::vector<CheckpointRange> out;
    CheckpointRange range;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
        const ActivationCheckpointing& how = jobs[j].activation_checkpointing;
        if (how.mode == ActivationCheckpointing::Mode::selective) {
            continue;
        }
        range.more = j;
        range.more_blocks = how.regions(tree).size();
        if (range.more_blocks > range.fewer_blocks + 1) {
            out.push_back(range);
        }
        range.fewer = range.more;
        range.fewer_blocks = range.more_blocks;
    }
    return out;
}

TrainingJob with_checkpointed(const TrainingJob& job, const ModuleTree& tree, std::size_t blocks) {
    const std::vector<ModuleIndex> all = blocks_of(job, tree);
    return with_first_blocks(job, tree, std::span(all).first(blocks));
}

std::vector<std::pair<std::string, std::string>> settings_of(const TrainingJob& job,
                                                             const TrainingJob& base) {
    std::vector<std::pair<std::string, std::string>> out;
    const auto add = [&](const std::string& option, const std::string& value, const std::string& before) {
        if (value != before) {
            out.push_back({option, value});
        }
    };
    const auto mesh = [](const TrainingJob& of) {
        return std::to_string(of.mesh.replicate) + "x" + std::to_string(of.mesh.shard);
    };
    add("strategy", std::string(name(job.strategy)), std::string(name(base.strategy)));
    add("mesh", mesh(job), mesh(base));
    add("batch", std::to_string(job.batch), std::to_string(base.batch));
    add("accumulate", std::to_string(job.accumulate), std::to_string(base.accumulate));
    add("activation-checkpointing", name(job.activation_checkpointing), name(base.activation_checkpointing));
    add("optimizer", name(job.optimizer), name(base.optimizer));
    const auto reshard = [](const TrainingJob& of) {
        return of.reshard_after_forward ? std::to_string(*of.reshard_after_forward) : std::string("default");
    };
    add("reshard-after-forward", reshard(job), reshard(base));
    add("offload", job.offload ? "true" : "false", base.offload ? "true" : "false");
    add("forward-prefetch", job.forward_prefetch ? "true" : "false",
        base.forward_prefetch ? "true" : "false");
    const auto lists = [](const TrainingJob& of) {
        return of.fsdp2.forward_prefetch.empty()
                   ? std::string("implicit")
                   : std::to_string(of.fsdp2.forward_prefetch.front().second.size()) + " ahead";
    };
    add("prefetch", lists(job), lists(base));
    return out;
}

std::string space_in_words(const SearchQuestion& question) {
    const TrainingJob& job = question.question.jobs.front();
    const bool calls = !runtime(job.runtime).wraps_by_policy;
    std::string text;
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
    if (question.free.units) {
        add(std::string("units: any set of modules that own parameters") +
            (question.fold ? ", the same in each repeated block" : "") +
            (calls ? ", also 2, 4 or 8 blocks and up to 3 other neighbours in one call" : ""));
    }
    if (question.free.reshard) {
        add(calls ? "reshard_after_forward: a unit's own, for 0, 1/4, 1/2, 3/4 or all of like units, "
                    "the others into all ranks or a node's"
                  : "reshard after forward: all or none");
    }
    if (question.free.mesh) {
        add("mesh: full sharding and the larger sizes of groups that divide the ranks");
    }
    if (question.free.checkpointing) {
        add("checkpointing: none, selective, or the first blocks, any number");
    }
    if (question.free.batch) {
        add("micro-batch: all that divide " + std::to_string(job.batch * job.accumulate) +
            " sequences a GPU and step");
    }
    if (question.free.optimizer) {
        add("optimizer: fused where there is one");
    }
    if (question.free.prefetch && runtime(job.runtime).has_units) {
        add(calls ? "prefetching of the best: implicit, or lists of 1 or 2 units ahead"
                  : "prefetching of the best: forward or not, backward before or after the computation");
    }
    return text.empty() ? "these settings alone" : text;
}

}  // namespace fsdplan
