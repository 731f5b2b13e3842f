#include "frontend/deepspeed.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "frontend/settings_section.hpp"
#include "fsdplan/schedule.hpp"

// DeepSpeedConfig of DeepSpeed 0.19, and "auto" as HfTrainerDeepSpeedConfig of transformers 5.24 fills it.
namespace fsdplan::frontend {
namespace {

constexpr std::int64_t most_elements = largest_total;
constexpr std::string_view whose = "DeepSpeed's default";

// Known at the top, and nothing that a step's memory, traffic or time depends on.
constexpr std::array<std::string_view, 34> without_influence{"steps_per_print",
                                                             "wall_clock_breakdown",
                                                             "memory_breakdown",
                                                             "dump_state",
                                                             "scheduler",
                                                             "tensorboard",
                                                             "wandb",
                                                             "comet",
                                                             "csv_monitor",
                                                             "monitor_config",
                                                             "comms_logger",
                                                             "flops_profiler",
                                                             "zero_allow_untested_optimizer",
                                                             "zero_force_ds_cpu_optimizer",
                                                             "checkpoint",
                                                             "dataloader_drop_last",
                                                             "prescale_gradients",
                                                             "gradient_predivide_factor",
                                                             "sparse_gradients",
                                                             "disable_allgather",
                                                             "aio",
                                                             "nebula",
                                                             "autotuning",
                                                             "graph_harvesting",
                                                             "seed",
                                                             "managed_gradient_accumulation",
                                                             "check_overflow",
                                                             "disable_python_gc",
                                                             "gradient_allreduce_op",
                                                             "seq_parallel_communication_data_type",
                                                             "log_level",
                                                             "timers",
                                                             "datastates_ckpt",
                                                             "use_data_before_expert_parallelism"};

// Known in zero_optimization, likewise.
constexpr std::array<std::string_view, 19> zero_without_influence{
    "load_from_fp32_weights",
    "elastic_checkpoint",
    "allgather_partitions",
    "ignore_unused_parameters",
    "legacy_stage1",
    "override_module_apply",
    "log_trace_cache_warnings",
    "enable_sanity_checks",
    "memory_efficient_linear",
    "pipeline_loading_checkpoint",
    "save_muon_momentum_buffer_in_memory",
    "gather_16bit_weights_on_model_save",
    "stage3_gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save",
    "stage3_partition_stream_chunk_size",
    "partition_stream_chunk_size",
    "cpu_offload_use_pin_memory",
    "zeropp_loco_param",
    "compute_grad_norm",
};

std::optional<DType> short_dtype(std::string_view name) {
    return name == "fp32"   ? std::optional(DType::float32)
           : name == "fp16" ? std::optional(DType::float16)
           : name == "bf16" ? std::optional(DType::bfloat16)
                            : std::nullopt;
}

/// hidden_size of the model's configuration: as wide as its final norm or its embeddings are.
std::optional<std::int64_t> hidden_size(const ModelGraph& model, const ModuleTree& tree) {
    const ModelHints hints = model_hints(model, tree);
    for (const std::optional<std::string>& path : {hints.final_norm, hints.input_embeddings}) {
        const auto weight = path ? tree.find_parameter(join_path(*path, "weight")) : std::nullopt;
        if (weight && !tree.tensors[at(*weight)].shape.empty()) {
            return tree.tensors[at(*weight)].shape.back();
        }
    }
    return std::nullopt;
}

class Configuration {
public:
    Configuration(const json::Value& root, const FrontendQuestion& about, const TrainerValues& trainer)
        : about_(about), trainer_(trainer), where_(root.where()), top_(root, "", std::string(whose), out_) {
        out_.job = about.job;
    }

    FrontendPlan read() {
        zero();
        precision();
        batch();
        optimizer();
        refuse_what_no_plan_tells();
        activation_checkpointing();
        top_.skip(without_influence);
        top_.note_unknown("is dropped without a word");
        return std::move(out_);
    }

private:
    TrainingJob& job() { return out_.job; }

    /// Its model drops values of "auto" before it looks at them.
    SettingsSection section(std::string_view name) {
        SettingsSection out(top_.raw(name), std::string(name) + ".", std::string(whose), out_);
        out.auto_is_usual();
        return out;
    }

    void zero() {
        const std::optional<json::Value> given = top_.raw("zero_optimization");
        if (given && given->is_boolean()) {
            top_.note("zero_optimization", "as a bool is an old form: true is stage 1");
            set_stage(given->boolean() ? 1 : 0);
            return;
        }
        SettingsSection zero = section("zero_optimization");
        set_stage(zero.integer("stage", 0, 0, 3));
        refuse_offload(zero);
        refuse_zero_plus_plus(zero);
        all_stages(zero);
        stage_3(zero);
        zero.skip(zero_without_influence);
        zero.refuse_unknown();
    }

    void set_stage(std::int64_t stage) {
        stage_ = stage;
        job().runtime = stage == 0 ? "ddp" : fmt::format("zero{}", stage);
        job().strategy = runtime(job().runtime).strategies.front();
        if (stage == 0) {
            job().no_sync = true;
            out_.notes.emplace_back(
                "zero_optimization.stage 0 reduces all gradients at once behind backward; fsdplan simulates "
                "DistributedDataParallel, whose buckets are reduced while backward goes on");
        }
    }

    static void refuse_offload(SettingsSection& zero) {
        for (const char* key : {"offload_optimizer", "offload_param"}) {
            const std::optional<json::Value> block = zero.raw(key);
            const auto device = block ? block->given("device") : std::nullopt;
            if (device && device->string() != "none") {
                zero.refuse(key, "moves ZeRO's states to " + device->shown() +
                                     ", which is outside of what fsdplan models so far");
            }
        }
        for (const char* key : {"cpu_offload", "cpu_offload_param"}) {
            if (const auto old = zero.raw(key); old && old->boolean()) {
                zero.refuse(
                    key, "moves ZeRO's states to the host, which is outside of what fsdplan models so far");
            }
        }
    }

    static void refuse_zero_plus_plus(SettingsSection& zero) {
        for (const char* key : {"zero_quantized_weights", "zero_quantized_gradients",
                                "zero_quantized_nontrainable_weights", "mics_hierarchical_params_gather"}) {
            if (const auto given = zero.raw(key); given && given->boolean()) {
                zero.refuse(key, "is outside of what fsdplan models so far");
            }
        }
        const auto partition = zero.raw("zero_hpz_partition_size");
        const auto group = zero.raw("mics_shard_size");
        if (partition && partition->integer(0) > 1) {
            zero.refuse("zero_hpz_partition_size", "is outside of what fsdplan models so far");
        }
        if (group && group->integer(-1) > 0) {
            zero.refuse("mics_shard_size", "is outside of what fsdplan models so far");
        }
        for (const char* key : {"zenflow", "leaf_module"}) {
            if (zero.raw(key)) {
                zero.refuse(key, "is outside of what fsdplan models so far");
            }
        }
        if (const auto granularity = zero.raw("stage3_module_granularity_threshold");
            granularity && granularity->integer(0) > 0) {
            zero.refuse("stage3_module_granularity_threshold", "is outside of what fsdplan models so far");
        }
    }

    /// By the hidden size, where the Trainer fills a size in.
    std::optional<std::int64_t> by_hidden_size(SettingsSection& zero, std::string_view key,
                                               std::int64_t (*size)(std::int64_t hidden)) {
        if (!zero.is_auto(key)) {
            return std::nullopt;
        }
        const std::optional<std::int64_t> hidden = hidden_size(about_.model, about_.tree);
        if (!hidden) {
            zero.refuse(key, "is auto, which the Trainer works out of a hidden size that this model has not");
        }
        zero.note(key, fmt::format("is auto: worked out of a hidden size of {}", *hidden));
        return size(*hidden);
    }

    void all_stages(SettingsSection& zero) {
        ZeroOptions& options = job().zero;
        options.reduce_bucket_size = zero.integer(
            "reduce_bucket_size", options.reduce_bucket_size, 0, most_elements,
            by_hidden_size(zero, "reduce_bucket_size", [](std::int64_t hidden) { return hidden * hidden; }));
        options.overlap_comm = zero.boolean("overlap_comm", stage_ == 3);
        options.contiguous_gradients = zero.boolean("contiguous_gradients", true);
        options.reduce_scatter = zero.boolean("reduce_scatter", true);
        options.use_multi_rank_bucket_allreduce = zero.boolean("use_multi_rank_bucket_allreduce", true);
        options.round_robin_gradients = zero.boolean("round_robin_gradients", false);
        options.parameter_alignment = zero.boolean("parameter_alignment", false);
        if (zero.raw("allgather_bucket_size")) {
            zero.note("allgather_bucket_size",
                      "has no effect: updated parameters are gathered in one call for each optimizer group");
        }
    }

    void stage_3(SettingsSection& zero) {
        ZeroOptions& options = job().zero;
        const auto size = [&](const std::string& key, std::int64_t usual,
                              std::int64_t (*of_hidden)(std::int64_t) = nullptr) {
            const bool short_form = zero.raw(key).has_value();
            const std::string name = short_form ? key : "stage3_" + key;
            if (stage_ != 3) {
                if (zero.raw(name)) {
                    zero.note(name, fmt::format("has no effect in stage {}", stage_));
                }
                return usual;
            }
            const auto filled = of_hidden != nullptr ? by_hidden_size(zero, name, of_hidden) : std::nullopt;
            return zero.integer(name, usual, 0, INT64_MAX, filled);
        };
        options.prefetch_bucket_size = size("prefetch_bucket_size", options.prefetch_bucket_size,
                                            [](std::int64_t hidden) { return hidden * hidden * 9 / 10; });
        options.param_persistence_threshold =
            size("param_persistence_threshold", options.param_persistence_threshold,
                 [](std::int64_t hidden) { return 10 * hidden; });
        options.model_persistence_threshold =
            size("model_persistence_threshold", options.model_persistence_threshold);
        options.max_live_parameters = size("max_live_parameters", options.max_live_parameters);
        options.max_reuse_distance = size("max_reuse_distance", options.max_reuse_distance);
        if (stage_ == 3) {
            options.sub_group_size = zero.integer("sub_group_size", options.sub_group_size, 1, most_elements);
            options.allgather_sequential = zero.boolean("stage3_allgather_sequential", false);
            options.use_all_reduce_for_fetch_params =
                zero.boolean("stage3_use_all_reduce_for_fetch_params", false);
            return;
        }
        for (const char* key :
             {"sub_group_size", "stage3_allgather_sequential", "stage3_use_all_reduce_for_fetch_params"}) {
            if (zero.raw(key)) {
                zero.note(key, fmt::format("has no effect in stage {}", stage_));
            }
        }
    }

    void precision() {
        constexpr std::array<std::string_view, 3> rest_of_bf16{"immediate_grad_update", "check_grad_overflow",
                                                               "bf16_optimizer_states"};
        constexpr std::array<std::string_view, 6> rest_of_fp16{
            "loss_scale", "initial_scale_power",    "loss_scale_window",
            "hysteresis", "consecutive_hysteresis", "min_loss_scale"};
        const bool old_name = top_.raw("bfloat16").has_value() && !top_.raw("bf16").has_value();
        SettingsSection bf16 = section(old_name ? "bfloat16" : "bf16");
        SettingsSection fp16 = section("fp16");
        const bool brain = bf16.boolean("enabled", false, trainer_.bf16);
        const bool half = fp16.boolean("enabled", false, trainer_.fp16);
        if (brain && half) {
            bf16.refuse("enabled", "is true beside fp16.enabled; DeepSpeed takes one of them");
        }
        for (const auto& [block, key] :
             {std::pair(&bf16, "bf16_master_weights_and_grads"),
              std::pair(&fp16, "fp16_master_weights_and_grads"), std::pair(&fp16, "auto_cast")}) {
            if (const auto given = block->raw(key); given && given->boolean()) {
                block->refuse(key, "is outside of what fsdplan models so far");
            }
        }
        bf16.skip(rest_of_bf16);
        bf16.refuse_unknown();
        fp16.skip(rest_of_fp16);
        fp16.refuse_unknown();
        if (bf16.is_auto("enabled") || fp16.is_auto("enabled")) {
            out_.notes.push_back(fmt::format(
                "bf16.enabled and fp16.enabled of auto follow the Trainer's bf16 and fp16, here {} and {}",
                trainer_.bf16, trainer_.fp16));
        }
        job().param_dtype = brain  ? std::optional(DType::bfloat16)
                            : half ? std::optional(DType::float16)
                                   : std::nullopt;
        const std::string wire = top_.word("communication_data_type", "", {"fp32", "fp16", "bf16"});
        job().reduce_dtype = short_dtype(wire);
        SettingsSection types = section("data_types");
        const std::string accumulated = types.word("grad_accum_dtype", "", {"fp32", "fp16", "bf16"});
        job().zero.float32_accumulation = accumulated == "fp32" && job().param_dtype.has_value();
        types.note_unknown("is dropped without a word");
    }

    /// Of the three numbers two give the third.
    void batch() {
        constexpr std::int64_t most = std::int64_t{1} << 32U;
        const std::int64_t ranks = about_.ranks;
        const auto known = [&](const char* key) { return top_.raw(key).has_value() && !top_.is_auto(key); };
        const bool by_trainer = std::ranges::any_of(
            std::array{"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"},
            [&](const char* key) { return top_.is_auto(key); });
        const bool has_micro = known("train_micro_batch_size_per_gpu") || by_trainer;
        const bool has_total = known("train_batch_size");
        const bool has_steps = known("gradient_accumulation_steps") || by_trainer;
        if (!has_micro && !has_total) {
            throw Error(ErrorKind::input, where_,
                        "DeepSpeed needs train_batch_size or train_micro_batch_size_per_gpu");
        }
        const std::int64_t total = has_total ? top_.integer("train_batch_size", 0, 1, most) : std::int64_t{0};
        std::int64_t steps_usual = 1;
        std::int64_t micro_usual = trainer_.batch;
        if (has_total && has_micro && !has_steps) {
            micro_usual = top_.raw("train_micro_batch_size_per_gpu")->integer(1, most);
            steps_usual = std::max<std::int64_t>(total / micro_usual / ranks, 1);
        } else if (has_total && !has_micro) {
            steps_usual = has_steps ? top_.raw("gradient_accumulation_steps")->integer(1, most) : 1;
            micro_usual = std::max<std::int64_t>(total / ranks / steps_usual, 1);
        }
        job().batch = top_.integer("train_micro_batch_size_per_gpu", micro_usual, 1, most, trainer_.batch);
        job().accumulate =
            top_.integer("gradient_accumulation_steps", steps_usual, 1, most, trainer_.accumulate);
        if (has_total &&
            checked_mul(checked_mul(job().batch, job().accumulate, where_), ranks, where_) != total) {
            top_.refuse(
                "train_batch_size",
                fmt::format("is {}, but {} sequences x {} micro-batches x {} GPUs are {}", total, job().batch,
                            job().accumulate, ranks, job().batch * job().accumulate * ranks));
        }
        const double clipping = top_.number("gradient_clipping", 1.0, trainer_.max_grad_norm);
        job().clip_norm = clipping > 0 ? std::optional(2.0) : std::nullopt;
    }

    void optimizer() {
        SettingsSection block = section("optimizer");
        const std::optional<json::Value> type = block.raw("type");
        if (!type) {
            return;  // the training script's
        }
        std::string name(type->string());
        std::ranges::transform(name, name.begin(), [](char c) {
            return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        });
        const auto params = block.raw("params");
        const auto flag = [&](const char* key, bool usual) {
            const auto given = params ? params->given(key) : std::nullopt;
            return given ? given->boolean() : usual;
        };
        if (name != "adam" && name != "adamw") {
            block.refuse("type",
                         "is " + type->shown() + "; fsdplan models DeepSpeed's Adam and AdamW so far");
        }
        job().optimizer.kind = name == "adamw" || flag("adam_w_mode", true) ? "adamw" : "adam";
        job().optimizer.implementation =
            flag("torch_adam", false) ? Optimizer::Implementation::foreach : Optimizer::Implementation::fused;
        out_.settings.push_back({"optimizer.type", fsdplan::name(job().optimizer), where_});
        block.skip(std::array<std::string_view, 1>{"legacy_fusion"});
        block.note_unknown("is dropped without a word");
    }

    void refuse_what_no_plan_tells() {
        for (const char* key :
             {"amp", "torch_autocast", "weight_quantization", "expert_parallel", "elasticity",
              "hybrid_engine", "sparse_attention", "compression_training", "progressive_layer_drop",
              "quantize_training", "curriculum_learning", "data_efficiency", "eigenvalue"}) {
            const auto block = top_.raw(key);
            const auto enabled = block && block->is_object() ? block->given("enabled") : std::nullopt;
            if (enabled && enabled->boolean()) {
                top_.refuse(key, "is enabled, which is outside of what fsdplan models so far");
            }
        }
        const auto tensor_parallel = top_.raw("tensor_parallel");
        const auto size = tensor_parallel ? tensor_parallel->given("autotp_size") : std::nullopt;
        const auto sequence_parallel = top_.raw("sequence_parallel_size");
        if ((size && size->integer(0) > 1) || (sequence_parallel && sequence_parallel->integer(1) > 1)) {
            top_.refuse(size ? "tensor_parallel" : "sequence_parallel_size",
                        "splits the model itself, which is outside of what fsdplan models so far");
        }
        top_.skip(std::array<std::string_view, 1>{"pipeline"});
        if (const auto compile = top_.raw("compile")) {
            top_.note("compile", "is simulated eagerly");
        }
    }

    void activation_checkpointing() {
        if (top_.raw("activation_checkpointing")) {
            top_.note("activation_checkpointing",
                      "has no effect unless the model itself calls deepspeed.checkpointing; "
                      "--activation-checkpointing says what the training script does");
        }
    }

    const FrontendQuestion& about_;
    const TrainerValues& trainer_;
    FrontendPlan out_;
    std::string where_;
    SettingsSection top_;
    std::int64_t stage_ = 0;
};

}  // namespace

FrontendPlan deepspeed_plan(const json::Value& configuration, const FrontendQuestion& about,
                            const TrainerValues& trainer) {
    return Configuration(configuration, about, trainer).read();
}

}  // namespace fsdplan::frontend
