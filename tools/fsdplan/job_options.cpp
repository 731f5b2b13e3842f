#include "job_options.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "arguments.hpp"
#include "lists.hpp"

namespace fsdplan::cli {
namespace {

constexpr std::int64_t longest_default_sequence = 8192;
constexpr std::int64_t sequence_of_unknown_model = 2048;
constexpr std::size_t most_jobs = 10'000;

std::int64_t default_sequence(const ModelGraph& model) {
    return std::min(model.longest_sequence.value_or(sequence_of_unknown_model), longest_default_sequence);
}

/// A dtype of mixed precision; "none" is no conversion.
std::optional<DType> parse_precision(const std::string& text, const std::string& option) {
    if (text == "none") {
        return std::nullopt;
    }
    const std::optional<DType> dtype = dtype_from_name(text);
    if (!dtype || !is_floating_point(*dtype)) {
        throw Error(ErrorKind::input, option,
                    "expected a floating-point dtype such as bfloat16, or none; found \"" + text + '"' +
                        did_you_mean(text, dtype_names()));
    }
    return dtype;
}

std::int64_t parse_reshard(const std::string& text, std::int64_t shard) {
    if (text == "true" || text == "false") {
        return text == "true" ? 1 : 0;
    }
    const std::int64_t ranks = parse_integer(text, "--reshard-after-forward");
    if (ranks < 1) {
        throw Error(ErrorKind::input, "--reshard-after-forward",
                    "expected true, false or a number of ranks, found \"" + text + "\"");
    }
    // As torch reads it: groups of one keep everything, groups of all free everything.
    return ranks == 1 ? 0 : ranks == shard ? 1 : ranks;
}

using Set = std::function<void(TrainingJob&, const std::string&)>;

/// Each value of a listed option on each job so far; `set` applies one. One value names no setting.
void combine(std::vector<ListedJob>& jobs, const std::string& option, const std::vector<std::string>& texts,
             const Set& set) {
    const std::vector<std::string> values = parse_list(texts, "--" + option);
    if (values.empty()) {
        return;
    }
    std::vector<ListedJob> combined;
    for (const ListedJob& before : jobs) {
        for (const std::string& value : values) {
            ListedJob next = before;
            set(next.job, value);
            if (values.size() > 1) {
                next.settings.push_back({option, value});
            }
            combined.push_back(std::move(next));
        }
        if (combined.size() > most_jobs) {
            throw Error(ErrorKind::input, "--" + option, "more than 10,000 combinations; give fewer values");
        }
    }
    jobs = std::move(combined);
}

Set number(std::int64_t TrainingJob::*member, const std::string& option) {
    return [member, option](TrainingJob& job, const std::string& text) {
        job.*member = parse_integer(text, option);
    };
}

}  // namespace

void JobOptions::declare(Arguments& arguments) {
    arguments.option("--batch", batch, "sequences per GPU and micro-batch (1); a list sweeps", "N,…");
    arguments.option("--seq", sequence,
                     "tokens of a sequence (the model's longest, at most 8192); a list sweeps", "N,…");
    arguments.option("--accumulate", accumulate, "micro-batches of a step (1); a list sweeps", "N,…");
    arguments.flag("--no-sync", no_sync, "reduce gradients in the last micro-batch only");
    arguments.option("--param-dtype", param_dtype, "dtype to compute and gather in, or none (bfloat16)",
                     "DTYPE");
    arguments.option("--reduce-dtype", reduce_dtype, "dtype of gradient reductions (what torch infers)",
                     "DTYPE");
    arguments.option("--buffer-dtype", buffer_dtype, "dtype that buffers are cast to", "DTYPE");
    arguments.option(
        "--strategy", strategy,
        "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, _HYBRID_SHARD_ZERO2 (FULL_SHARD); a list sweeps",
        "NAME,…");
    arguments.option("--reshard-after-forward", reshard_after_forward,
                     "fsdp2: true, false or a number of ranks", "VALUE");
    arguments.option("--mesh", mesh,
                     "replicas x shards, such as 2x8 (nodes x their GPUs for hybrid strategies)", "RxS");
    arguments.option("--backward-prefetch", backward_prefetch,
                     "BACKWARD_PRE, BACKWARD_POST or none (BACKWARD_PRE)", "NAME");
    arguments.flag("--forward-prefetch", forward_prefetch, "fsdp1 gathers the next unit explicitly");
    arguments.flag("--no-limit-all-gathers", no_limit_all_gathers, "fsdp1 lets the host run ahead");
    arguments.flag("--offload", offload, "shards and the optimizer live in host memory");
    arguments.option("--optimizer", optimizer,
                     "adamw[:foreach|fused|for-loop], adam8bit or sgd (adamw:foreach); a list sweeps",
                     "NAME,…");
    arguments.option("--activation-checkpointing", activation_checkpointing,
                     "none, blocks, every:N or selective (none); a list sweeps", "MODE,…");
    arguments.option(
        "--loss", loss,
        "cross-entropy, chunked:N, low-precision, fused:N or none (cross-entropy); a list sweeps", "KIND,…");
}

std::vector<ListedJob> JobOptions::jobs(const ModelGraph& model, const Cluster& cluster,
                                        const RuntimeInfo& runtime, bool use_orig_params) const {
    TrainingJob base;
    base.runtime = runtime.name;
    base.strategy = runtime.strategies.front();
    base.sequence = default_sequence(model);
    base.no_sync = no_sync;
    base.use_orig_params = use_orig_params;
    base.forward_prefetch = forward_prefetch;
    base.limit_all_gathers = !no_limit_all_gathers;
    base.offload = offload;
    if (param_dtype) {
        base.param_dtype = parse_precision(*param_dtype, "--param-dtype");
    }
    if (reduce_dtype) {
        base.reduce_dtype = parse_precision(*reduce_dtype, "--reduce-dtype");
    }
    if (buffer_dtype) {
        base.buffer_dtype = parse_precision(*buffer_dtype, "--buffer-dtype");
    }
    if (backward_prefetch) {
        base.backward_prefetch = parse_backward_prefetch(*backward_prefetch);
    }
    std::vector<ListedJob> jobs{{.job = base, .settings = {}}};
    combine(jobs, "strategy", strategy,
            [](TrainingJob& job, const std::string& text) { job.strategy = parse_strategy(text); });
    combine(jobs, "batch", batch, number(&TrainingJob::batch, "--batch"));
    combine(jobs, "seq", sequence, number(&TrainingJob::sequence, "--seq"));
    combine(jobs, "accumulate", accumulate, number(&TrainingJob::accumulate, "--accumulate"));
    combine(jobs, "optimizer", optimizer,
            [](TrainingJob& job, const std::string& text) { job.optimizer = parse_optimizer(text); });
    combine(jobs, "activation-checkpointing", activation_checkpointing,
            [](TrainingJob& job, const std::string& text) {
                job.activation_checkpointing = parse_activation_checkpointing(text);
            });
    combine(jobs, "loss", loss,
            [](TrainingJob& job, const std::string& text) { job.loss = parse_loss(text); });
    for (ListedJob& listed : jobs) {
        TrainingJob& job = listed.job;
        job.mesh = mesh ? parse_mesh(*mesh) : usual_mesh(runtime, job.strategy, cluster);
        if (reshard_after_forward) {
            job.reshard_after_forward = parse_reshard(*reshard_after_forward, job.mesh.shard);
        }
        check(job, cluster.gpus);
    }
    return jobs;
}

std::vector<Assumption> JobOptions::assumptions(const ModelGraph& model, const TrainingJob& job) const {
    std::vector<Assumption> out;
    const auto add = [&](const std::string& what, const std::string& value, bool given,
                         const std::string& option, const std::string& note) {
        out.push_back({what, value, given ? option : "default", note});
    };
    add("strategy", std::string(name(job.strategy)), !strategy.empty(), "--strategy", "");
    add("micro-batch", std::to_string(job.batch), !batch.empty(), "--batch", "sequences per GPU");
    const bool cut = model.longest_sequence && *model.longest_sequence > longest_default_sequence;
    std::string sequence_note = !model.longest_sequence
                                    ? "the model names no longest sequence"
                                    : fmt::format("the model takes up to {}", *model.longest_sequence);
    out.push_back({"sequence", std::to_string(job.sequence),
                   !sequence.empty()                ? "--seq"
                   : model.longest_sequence && !cut ? "model"
                                                    : "default",
                   std::move(sequence_note)});
    add("accumulation", std::to_string(job.accumulate), !accumulate.empty(), "--accumulate",
        no_sync ? "gradients are reduced in the last micro-batch"
                : "gradients are reduced in every micro-batch");
    add("compute dtype", job.param_dtype ? std::string(name(*job.param_dtype)) : "as stored",
        param_dtype.has_value(), "--param-dtype", "mixed precision");
    add("reduction dtype", job.reduce_dtype ? std::string(name(*job.reduce_dtype)) : "as the runtime infers",
        reduce_dtype.has_value(), "--reduce-dtype", "");
    add("optimizer", name(job.optimizer), !optimizer.empty(), "--optimizer", "");
    add("activation checkpointing", name(job.activation_checkpointing), !activation_checkpointing.empty(),
        "--activation-checkpointing", "");
    add("loss", name(job.loss), !loss.empty(), "--loss", "");
    return out;
}

}  // namespace fsdplan::cli
