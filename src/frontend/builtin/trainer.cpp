#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/file.hpp"
#include "frontend/accelerated_plan.hpp"
#include "frontend/deepspeed.hpp"
#include "frontend/python_value.hpp"
#include "frontend/settings_section.hpp"
#include "frontend/yaml_file.hpp"
#include "fsdplan/schedule.hpp"

// TrainingArguments of transformers 5.24, as the Trainer acts on them.
namespace fsdplan {
namespace {

using frontend::SettingsSection;

constexpr std::int64_t most = std::int64_t{1} << 32U;
constexpr std::string_view whose = "the Trainer's default";
constexpr std::uintmax_t largest_file = std::uintmax_t{1} << 20U;

// Known to TrainingArguments, and nothing that a step's memory, traffic or time depends on.
constexpr std::array<std::string_view, 88> without_influence{"output_dir",
                                                             "num_train_epochs",
                                                             "max_steps",
                                                             "learning_rate",
                                                             "lr_scheduler_type",
                                                             "lr_scheduler_kwargs",
                                                             "warmup_steps",
                                                             "warmup_ratio",
                                                             "optim_args",
                                                             "weight_decay",
                                                             "adam_beta1",
                                                             "adam_beta2",
                                                             "adam_epsilon",
                                                             "average_tokens_across_devices",
                                                             "label_smoothing_factor",
                                                             "bf16_full_eval",
                                                             "fp16_full_eval",
                                                             "tf32",
                                                             "torch_compile_backend",
                                                             "torch_compile_mode",
                                                             "liger_kernel_config",
                                                             "use_cache",
                                                             "torch_empty_cache_steps",
                                                             "logging_strategy",
                                                             "logging_steps",
                                                             "logging_first_step",
                                                             "logging_dir",
                                                             "log_on_each_node",
                                                             "logging_nan_inf_filter",
                                                             "include_num_input_tokens_seen",
                                                             "log_level",
                                                             "log_level_replica",
                                                             "disable_tqdm",
                                                             "report_to",
                                                             "run_name",
                                                             "project",
                                                             "trackio_space_id",
                                                             "trackio_bucket_id",
                                                             "trackio_static_space_id",
                                                             "eval_strategy",
                                                             "eval_steps",
                                                             "eval_delay",
                                                             "per_device_eval_batch_size",
                                                             "prediction_loss_only",
                                                             "eval_on_start",
                                                             "eval_do_concat_batches",
                                                             "eval_use_gather_object",
                                                             "eval_accumulation_steps",
                                                             "include_for_metrics",
                                                             "batch_eval_metrics",
                                                             "save_only_model",
                                                             "save_strategy",
                                                             "save_steps",
                                                             "save_on_each_node",
                                                             "save_total_limit",
                                                             "enable_jit_checkpoint",
                                                             "push_to_hub",
                                                             "hub_token",
                                                             "hub_private_repo",
                                                             "hub_model_id",
                                                             "hub_strategy",
                                                             "hub_always_push",
                                                             "hub_revision",
                                                             "load_best_model_at_end",
                                                             "metric_for_best_model",
                                                             "greater_is_better",
                                                             "ignore_data_skip",
                                                             "restore_callback_states_from_checkpoint",
                                                             "full_determinism",
                                                             "seed",
                                                             "data_seed",
                                                             "dataloader_drop_last",
                                                             "dataloader_num_workers",
                                                             "dataloader_pin_memory",
                                                             "dataloader_persistent_workers",
                                                             "dataloader_prefetch_factor",
                                                             "dataloader_multiprocessing_context",
                                                             "dataloader_in_order",
                                                             "remove_unused_columns",
                                                             "label_names",
                                                             "train_sampling_strategy",
                                                             "length_column_name",
                                                             "do_train",
                                                             "do_eval",
                                                             "do_predict",
                                                             "resume_from_checkpoint",
                                                             "local_rank",
                                                             "debug"};

struct NamedOptimizer {
    std::string_view optim;
    std::string_view optimizer;
};
constexpr std::array<NamedOptimizer, 8> optimizers_of_trainer{{{"adamw_torch", "adamw"},
                                                               {"adamw_torch_fused", "adamw:fused"},
                                                               {"adafactor", "adafactor"},
                                                               {"sgd", "sgd"},
                                                               {"adamw_8bit", "adam8bit-bnb"},
                                                               {"adamw_bnb_8bit", "adam8bit-bnb"},
                                                               {"adamw_torch_4bit", "adam4bit"},
                                                               {"adamw_torch_8bit", "adam8bit"}}};

constexpr std::array<std::string_view, 18> fsdp_keys{"version",
                                                     "cpu_offload",
                                                     "auto_wrap_policy",
                                                     "min_num_params",
                                                     "transformer_layer_cls_to_wrap",
                                                     "cpu_ram_efficient_loading",
                                                     "state_dict_type",
                                                     "activation_checkpointing",
                                                     "reshard_after_forward",
                                                     "forward_prefetch",
                                                     "backward_prefetch",
                                                     "use_orig_params",
                                                     "sync_module_states",
                                                     "limit_all_gathers",
                                                     "xla",
                                                     "xla_fsdp_v2",
                                                     "xla_fsdp_grad_ckpt",
                                                     "xla_fsdp_settings"};
constexpr std::array<std::string_view, 5> of_version_1{
    "forward_prefetch", "backward_prefetch", "use_orig_params", "sync_module_states", "limit_all_gathers"};

/// The file of settings that a setting names.
std::string text_of(const json::Value& name) {
    try {
        return read_file(std::string(name.string()), largest_file);
    } catch (const Error& error) {
        throw Error(ErrorKind::input, name.where(),
                    "names the file " + name.shown() + ", which " + error.faults().front().message);
    }
}

std::string_view short_key(std::string_view key) {
    return key.starts_with("fsdp_") ? key.substr(5) : key;
}

class TrainerFile {
public:
    TrainerFile(const json::Value& root, const FrontendQuestion& about)
        : about_(about), where_(root.where()), top_(root, "", std::string(whose), out_) {
        out_.job = about.job;
    }

    FrontendPlan read() {
        work();
        optimizer();
        precision();
        shard();
        activation_checkpointing();
        what_is_simulated_otherwise();
        top_.skip(without_influence);
        top_.note_unknown("decides nothing here");
        return std::move(out_);
    }

private:
    TrainingJob& job() { return out_.job; }

    void work() {
        job().batch = top_.integer("per_device_train_batch_size", 8, 1, most);
        job().accumulate = top_.integer("gradient_accumulation_steps", 1, 1, most);
        max_grad_norm_ = top_.number("max_grad_norm", 1.0);
        job().clip_norm = max_grad_norm_ > 0 ? std::optional(2.0) : std::nullopt;
        job().loss_in_model = true;  // it hands the labels to the model
        const auto config = top_.raw("accelerator_config");
        const auto accumulation =
            config && config->is_object() ? config->given("gradient_accumulation_kwargs") : std::nullopt;
        const auto each = accumulation ? accumulation->given("sync_each_batch") : std::nullopt;
        job().no_sync = job().accumulate > 1 && !(each && each->boolean());
        out_.settings.push_back(
            {"no_sync", job().no_sync ? "true" : "false", each ? where_ : std::string(whose)});
    }

    void optimizer() {
        const std::string optim = top_.word("optim", "adamw_torch_fused");
        const auto known = std::ranges::find(optimizers_of_trainer, optim, &NamedOptimizer::optim);
        if (known == optimizers_of_trainer.end()) {
            std::vector<std::string> names;
            for (const NamedOptimizer& named : optimizers_of_trainer) {
                names.emplace_back(named.optim);
            }
            top_.refuse("optim", "is " + json::quote(optim) + ", which fsdplan does not model so far" +
                                     did_you_mean(optim, names));
        }
        job().optimizer = parse_optimizer(known->optimizer);
        if (const auto targets = top_.raw("optim_target_modules")) {
            top_.note("optim_target_modules", "has no effect with this optim");
        }
    }

    void precision() {
        bf16_ = top_.boolean("bf16", false);
        fp16_ = top_.boolean("fp16", false);
        if (bf16_ && fp16_) {
            top_.refuse("fp16", "is true beside bf16; the Trainer takes one of them");
        }
    }

    std::string_view mixed_precision() const { return bf16_ ? "bf16" : fp16_ ? "fp16" : "no"; }

    void shard() {
        if (deepspeed()) {
            return;
        }
        const auto fsdp = top_.raw("fsdp");
        const PythonValue words = fsdp ? frontend::python_value(*fsdp) : PythonValue{};
        const PythonArguments config = fsdp_config();
        std::optional<PythonArguments> arguments =
            frontend::or_error(trainer_plugin_arguments({.fsdp = words, .config = config}), where_);
        if (!arguments) {
            if (!config.empty()) {
                top_.note("fsdp_config", "has no effect without fsdp: the Trainer does not shard");
            }
            replicate();
            return;
        }
        report_keys(config, *arguments);
        if (mixed_precision() != "no") {
            (*arguments)["mixed_precision_policy"] = std::string(mixed_precision());
        }
        const AcceleratePlugin plugin = frontend::or_error(accelerate_plugin(*arguments, {}), where_);
        frontend::prepare_plan(plugin, mixed_precision(), about_, where_, out_);
        for (auto& [key, value] : frontend::plugin_settings(plugin, about_.model)) {
            const std::string name = key == "offload_params" ? "cpu_offload" : key;
            const bool given = std::ranges::any_of(
                config, [&](const auto& entry) { return short_key(entry.first) == name; });
            out_.settings.push_back(
                {"fsdp_config." + name, std::move(value), given ? where_ : std::string(whose)});
        }
    }

    /// Settings of a DeepSpeed configuration; false when there is none.
    bool deepspeed() {
        const auto given = top_.raw("deepspeed");
        if (!given) {
            return false;
        }
        const frontend::TrainerValues values{.batch = job().batch,
                                             .accumulate = job().accumulate,
                                             .max_grad_norm = max_grad_norm_,
                                             .bf16 = bf16_,
                                             .fp16 = fp16_};
        if (given->is_object()) {
            take(frontend::deepspeed_plan(*given, about_as_far(), values));
            return true;
        }
        const std::string file(given->string());
        const json::Document document(text_of(*given), file);
        take(frontend::deepspeed_plan(document.root(), about_as_far(), values));
        return true;
    }

    FrontendQuestion about_as_far() const {
        return {.model = about_.model, .tree = about_.tree, .job = out_.job, .ranks = about_.ranks};
    }

    void take(FrontendPlan plan) {
        if (plan.job.batch != job().batch || plan.job.accumulate != job().accumulate) {
            top_.refuse("deepspeed",
                        fmt::format("has {} sequences x {} micro-batches, the Trainer {} x {}; write auto",
                                    plan.job.batch, plan.job.accumulate, job().batch, job().accumulate));
        }
        job() = std::move(plan.job);
        std::ranges::move(plan.settings, std::back_inserter(out_.settings));
        std::ranges::move(plan.notes, std::back_inserter(out_.notes));
    }

    PythonArguments fsdp_config() {
        const auto given = top_.raw("fsdp_config");
        if (!given) {
            return {};
        }
        if (!given->is_string()) {
            return frontend::python_arguments(*given);
        }
        const std::string file(given->string());
        const json::Document document(text_of(*given), file);
        return frontend::python_arguments(document.root());
    }

    void replicate() {
        job().runtime = about_.ranks > 1 ? "ddp" : "single";
        job().strategy = runtime(job().runtime).strategies.front();
        job().param_dtype = std::nullopt;
        if (mixed_precision() != "no") {
            out_.notes.emplace_back(std::string(mixed_precision()) +
                                    " without fsdp is autocast, which keeps parameters as they are stored; "
                                    "fsdplan simulates it without autocast");
        }
    }

    void report_keys(const PythonArguments& config, const PythonArguments& arguments) {
        const std::vector<std::string> known(fsdp_keys.begin(), fsdp_keys.end());
        const auto number = arguments.find("fsdp_version");
        const bool first = number != arguments.end() && number->second == PythonValue(std::int64_t{1});
        for (const auto& [key, value] : config) {
            const std::string name(short_key(key));
            if (std::ranges::find(known, name) == known.end()) {
                out_.notes.push_back("fsdp_config." + key +
                                     " is no key that is known and is dropped without a word" +
                                     did_you_mean(name, known));
            } else if (!first && std::ranges::find(of_version_1, name) != of_version_1.end()) {
                out_.notes.push_back("fsdp_config." + key + " has no effect in version 2");
            } else if (name == "xla" && frontend::truth(value)) {
                top_.refuse("fsdp_config", "shards with XLA, which is outside of what fsdplan models so far");
            }
        }
        const auto policy = arguments.find("auto_wrap_policy");
        const bool by_size = policy != arguments.end() && policy->second == PythonValue("SIZE_BASED_WRAP");
        for (const auto& [key, value] : config) {
            if (short_key(key) == "min_num_params" && !by_size && frontend::truth(value)) {
                out_.notes.push_back("fsdp_config." + key +
                                     " has no effect unless auto_wrap_policy is SIZE_BASED_WRAP");
            }
        }
        if (first) {
            out_.notes.emplace_back(
                "fsdp_config.version 1 runs FULL_SHARD whatever strategy is named: the Trainer hands it on "
                "as "
                "reshard_after_forward, which version 1 ignores");
        }
    }

    // GradientCheckpointingLayer checkpoints its forward, below the hooks.
    void activation_checkpointing() {
        const auto flag = [&](const char* key) {
            const auto given = top_.raw(key);
            return given && given->boolean();
        };
        const bool asked = flag("activation_checkpointing") || flag("gradient_checkpointing");
        out_.settings.push_back({"activation_checkpointing", asked ? "true" : "false",
                                 top_.raw("activation_checkpointing") || top_.raw("gradient_checkpointing")
                                     ? where_
                                     : std::string(whose)});
        top_.raw("activation_checkpointing_kwargs");
        const auto options = top_.raw("gradient_checkpointing_kwargs");
        if (!asked) {
            return;
        }
        ActivationCheckpointing& checkpointing = job().activation_checkpointing;
        if (!checkpointing.modules.empty()) {
            top_.note("activation_checkpointing",
                      "is true beside that of fsdp_config, which is the one that is simulated");
            return;
        }
        const auto reentrant = options ? options->given("use_reentrant") : std::nullopt;
        checkpointing = {.mode = ActivationCheckpointing::Mode::blocks,
                         .placement = ActivationCheckpointing::Placement::forward,
                         .reentrant = reentrant && reentrant->boolean()};
    }

    void what_is_simulated_otherwise() {
        for (const char* key : {"torch_compile", "use_liger_kernel", "auto_find_batch_size"}) {
            if (const auto given = top_.raw(key); given && given->boolean()) {
                top_.note(key, "is true, but the step is simulated without it");
            }
        }
        for (const char* key : {"neftune_noise_alpha", "parallelism_config", "ddp_bucket_cap_mb",
                                "ddp_find_unused_parameters", "ddp_broadcast_buffers", "ddp_static_graph"}) {
            if (top_.raw(key)) {
                top_.note(key, "is given, but the step is simulated without it");
            }
        }
        top_.skip(std::array<std::string_view, 5>{"ddp_backend", "ddp_timeout", "use_cpu",
                                                  "skip_memory_metrics",
                                                  "fsdp_transformer_layer_cls_to_wrap"});
    }

    const FrontendQuestion& about_;
    FrontendPlan out_;
    std::string where_;
    SettingsSection top_;
    double max_grad_norm_ = 1.0;
    bool bf16_ = false;
    bool fp16_ = false;
};

bool begins_with_brace(const std::string& text) {
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    return first != std::string::npos && text[first] == '{';
}

}  // namespace

namespace builtin::frontend_file {

extern const FrontendInfo trainer;
constinit const FrontendInfo trainer{
    .name = "Trainer",
    .option = "--trainer-config",
    .help = "JSON or YAML of transformers' TrainingArguments, as the Trainer acts on them",
    .read =
        [](const std::string& text, const std::string& file, const FrontendQuestion& about) {
            const json::Document document(begins_with_brace(text) ? text : frontend::yaml_as_json(text, file),
                                          file);
            return TrainerFile(document.root(), about).read();
        },
};

}  // namespace builtin::frontend_file
}  // namespace fsdplan
