#include "job_options.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <functional>

#include "arguments.hpp"
#include "fsdplan/cost.hpp"
#include "schedule/optimizer.hpp"

namespace fsdplan::cli {
namespace {

constexpr std::int64_t longest_default_sequence = 8192;
constexpr std::int64_t sequence_of_unknown_model = 2048;

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

/// "a, b or c"
std::string alternatives(const std::vector<std::string_view>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) {
        text += std::string(i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + std::string(names[i]);
    }
    return text;
}

std::string runtime_names() {
    std::vector<std::string_view> names;
    for (const RuntimeInfo* info : runtimes()) {
        names.push_back(info->name);
    }
    return alternatives(names);
}

std::string optimizer_names() {
    std::vector<std::string_view> names;
    for (const OptimizerInfo* info : optimizers()) {
        names.push_back(info->name);
    }
    return alternatives(names);
}

std::string version_names() {
    std::vector<std::string_view> names;
    for (const TorchBehaviour& known : torch_versions()) {
        names.push_back(known.version);
    }
    return alternatives(names);
}

/// Each value of a listed option on each job so far; `set` applies one. One value names no setting.
template <typename Value>
void combine(std::vector<ListedJob>& jobs, const std::string& option, const std::vector<Value>& values,
             const std::function<void(TrainingJob&, const Value&)>& set) {
    if (values.empty()) {
        return;
    }
    std::vector<ListedJob> combined;
    for (const ListedJob& before : jobs) {
        for (const Value& value : values) {
            ListedJob next = before;
            set(next.job, value);
            if (values.size() > 1) {
                next.settings.push_back({option, fmt::format("{}", value)});
            }
            combined.push_back(std::move(next));
        }
    }
    if (combined.size() > 10'000) {
        throw Error(ErrorKind::input, "--" + option, "more than 10,000 combinations; give fewer values");
    }
    jobs = std::move(combined);
}

}  // namespace

std::int64_t parse_reshard(const std::string& text, std::int64_t shard) {
    if (text == "true" || text == "false") {
        return text == "true" ? 1 : 0;
    }
    std::int64_t ranks = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
    if (error != std::errc{} || end != text.data() + text.size() || ranks < 1) {
        throw Error(ErrorKind::input, "--reshard-after-forward",
                    "expected true, false or a number of ranks, found \"" + text + "\"");
    }
    // As torch reads it: groups of one keep everything, groups of all free everything.
    return ranks == 1 ? 0 : ranks == shard ? 1 : ranks;
}

void JobOptions::declare(Arguments& arguments) {
    constexpr std::int64_t most = std::int64_t{1} << 32U;
    arguments.group("Work");
    arguments.list("--batch", batch, "sequences per GPU and micro-batch; 1", 1, most);
    arguments.list("--seq", sequence, "tokens of a sequence; the model's longest, at most 8192", 1, most);
    arguments.option("--target-seq", target_sequence,
                     "tokens of the decoder's sequence, in an encoder-decoder; as --seq", 1, most);
    arguments.list("--accumulate", accumulate, "micro-batches of a step; 1", 1, most);
    arguments.flag("--no-sync", no_sync, "reduce gradients in the last micro-batch only");
    arguments.list("--optimizer", optimizer,
                   optimizer_names() + "; adamw:foreach (see `fsdplan list optimizers`)", "NAME");
    arguments.list("--activation-checkpointing", activation_checkpointing,
                   "none, blocks, every:N or selective; none", "MODE");
    arguments.list("--loss", loss,
                   "cross-entropy, shifted, chunked:N, low-precision, fused[:N], cce or none; cross-entropy",
                   "KIND");
    arguments.list("--attention", attention, "sdpa, flash_attention_2 or eager; sdpa", "NAME");
    arguments.group("Precision");
    arguments.option("--param-dtype", param_dtype, "dtype to compute and gather in, or none; bfloat16",
                     "DTYPE");
    arguments.option("--reduce-dtype", reduce_dtype, "dtype of gradient reductions; what torch infers",
                     "DTYPE");
    arguments.option("--buffer-dtype", buffer_dtype, "dtype that buffers are cast to", "DTYPE");
    arguments.group("Sharding");
    arguments.option(
        "--runtime", runtime,
        runtime_names() + "; fsdp2, or fsdp1 when min_num_params or another of its policies is asked for",
        "NAME");
    arguments.option("--torch", torch,
                     "version of PyTorch whose behaviour counts, " + version_names() + "; " +
                         std::string(newest_torch) + " (see `fsdplan list versions`)",
                     "VERSION");
    arguments.list("--strategy", strategy,
                   "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or _HYBRID_SHARD_ZERO2; FULL_SHARD",
                   "NAME");
    arguments.option("--reshard-after-forward", reshard_after_forward,
                     "fsdp2: true, false or a number of ranks", "VALUE");
    arguments.option("--mesh", mesh,
                     "replicas x shards, such as 2x8; nodes x GPUs of a node for hybrid strategies", "RxS");
    arguments.option("--backward-prefetch", backward_prefetch,
                     "BACKWARD_PRE, BACKWARD_POST or none; BACKWARD_PRE", "NAME");
    arguments.flag("--forward-prefetch", forward_prefetch, "fsdp1: gather the next unit explicitly");
    arguments.flag("--no-limit-all-gathers", no_limit_all_gathers, "fsdp1: let the host run ahead");
    arguments.flag("--use-orig-params", use_orig_params, "fsdp1: keep the original parameters");
    arguments.flag("--offload", offload, "keep shards and the optimizer in host memory");
}

TrainingJob usual_job(const ModelGraph& model) {
    TrainingJob job;
    job.batch = model.recorded_batch.value_or(1);
    job.sequence = model.recorded_batch ? model.longest_sequence.value_or(1) : default_sequence(model);
    return job;
}

std::vector<ListedJob> JobOptions::jobs(const Cluster& cluster, TrainingJob base) const {
    const RuntimeInfo& info = fsdplan::runtime(runtime ? *runtime : base.runtime);
    base.runtime = info.name;
    base.torch = torch_behaviour(torch ? std::string_view(*torch) : std::string_view(base.torch)).version;
    if (std::ranges::find(info.strategies, base.strategy) == info.strategies.end()) {
        base.strategy = info.strategies.front();
    }
    base.target_sequence = target_sequence;
    base.no_sync |= no_sync;
    base.use_orig_params |= use_orig_params;
    base.forward_prefetch |= forward_prefetch;
    base.limit_all_gathers &= !no_limit_all_gathers;
    base.offload |= offload;
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
    combine<std::string>(jobs, "strategy", strategy, [](TrainingJob& job, const std::string& text) {
        job.strategy = parse_strategy(text);
    });
    combine<std::int64_t>(jobs, "batch", batch,
                          [](TrainingJob& job, const std::int64_t& n) { job.batch = n; });
    combine<std::int64_t>(jobs, "seq", sequence,
                          [](TrainingJob& job, const std::int64_t& n) { job.sequence = n; });
    combine<std::int64_t>(jobs, "accumulate", accumulate,
                          [](TrainingJob& job, const std::int64_t& n) { job.accumulate = n; });
    combine<std::string>(jobs, "optimizer", optimizer, [](TrainingJob& job, const std::string& text) {
        job.optimizer = parse_optimizer(text);
    });
    combine<std::string>(jobs, "activation-checkpointing", activation_checkpointing,
                         [](TrainingJob& job, const std::string& text) {
                             job.activation_checkpointing = parse_activation_checkpointing(text);
                         });
    combine<std::string>(jobs, "loss", loss,
                         [](TrainingJob& job, const std::string& text) { job.loss = parse_loss(text); });
    combine<std::string>(jobs, "attention", attention, [](TrainingJob& job, const std::string& text) {
        job.attention = parse_attention(text);
    });
    for (ListedJob& listed : jobs) {
        TrainingJob& job = listed.job;
        const bool mesh_of_base = base.mesh.ranks() > 1 && strategy.empty();
        job.mesh = mesh           ? parse_mesh(*mesh)
                   : mesh_of_base ? base.mesh
                                  : usual_mesh(info, job.strategy, cluster);
        if (reshard_after_forward) {
            job.reshard_after_forward = parse_reshard(*reshard_after_forward, job.mesh.shard);
        }
        check(job, cluster.gpus);
    }
    return jobs;
}

std::vector<Assumption> JobOptions::assumptions(const ModelGraph& model, const TrainingJob& job,
                                                const std::string& base) const {
    std::vector<Assumption> out;
    const auto add = [&](const std::string& what, const std::string& value, bool given,
                         const std::string& option, const std::string& note) {
        out.push_back({what, value, given ? option : base, note});
    };
    add("runtime", job.runtime, runtime.has_value(), "--runtime",
        std::string(fsdplan::runtime(job.runtime).help));
    add("PyTorch", job.torch, torch.has_value(), "--torch", std::string(torch_behaviour(job.torch).summary));
    add("strategy", std::string(name(job.strategy)), !strategy.empty(), "--strategy", "");
    add("micro-batch", std::to_string(job.batch), !batch.empty(), "--batch", "sequences per GPU");
    const bool cut = model.longest_sequence && *model.longest_sequence > longest_default_sequence;
    std::string sequence_note = !model.longest_sequence
                                    ? "the model names no longest sequence"
                                    : fmt::format("the model takes up to {}", *model.longest_sequence);
    out.push_back({"sequence", std::to_string(job.sequence),
                   !sequence.empty()                           ? "--seq"
                   : job.sequence != usual_job(model).sequence ? base
                   : model.longest_sequence && !cut            ? "model"
                                                               : "default",
                   std::move(sequence_note)});
    add("accumulation", std::to_string(job.accumulate), !accumulate.empty(), "--accumulate",
        job.no_sync ? "gradients are reduced in the last micro-batch"
                    : "gradients are reduced in every micro-batch");
    add("compute dtype", job.param_dtype ? std::string(name(*job.param_dtype)) : "as stored",
        param_dtype.has_value(), "--param-dtype", "mixed precision");
    add("reduction dtype", job.reduce_dtype ? std::string(name(*job.reduce_dtype)) : "as the runtime infers",
        reduce_dtype.has_value(), "--reduce-dtype", "");
    add("optimizer", name(job.optimizer), !optimizer.empty(), "--optimizer", "");
    add("activation checkpointing", name(job.activation_checkpointing), !activation_checkpointing.empty(),
        "--activation-checkpointing", "");
    add("loss", name(job.loss), !loss.empty(), "--loss", "");
    add("attention", std::string(name(job.attention)), !attention.empty(), "--attention", "");
    return out;
}

ModelGraph load_for_training(ModelOptions options, std::vector<Assumption>& assumptions) {
    ModelGraph model = options.load();
    std::string from = "--dtype";
    if (!options.dtype) {
        from = model.dtypes_recorded ? "model" : "default";
        if (!model.dtypes_recorded) {
            options.dtype = "float32";
            model = options.load();
        }
    }
    assumptions.push_back({"stored dtype", options.dtype.value_or("as exported"), from,
                           "of parameters, gradient shards and optimizer states"});
    return model;
}

}  // namespace fsdplan::cli
