#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "frontend/settings_section.hpp"
#include "frontend/toml_file.hpp"
#include "frontend/writers.hpp"
#include "fsdplan/schedule.hpp"

// torchtitan's TOML: the keys and defaults of its JobConfig, the calls of its llama3.
namespace fsdplan {
namespace {

using frontend::SettingsSection;

constexpr std::int64_t most = std::int64_t{1} << 32U;
constexpr std::string_view whose = "torchtitan's default";

constexpr std::array<std::string_view, 13> tables_without_influence{
    "job",        "profiling",    "metrics",           "lr_scheduler",    "checkpoint", "comm",     "debug",
    "validation", "experimental", "memory_estimation", "fault_tolerance", "hf_assets",  "tokenizer"};
constexpr std::array<std::string_view, 11> training_without_influence{
    "dataset",       "dataset_path",
    "steps",         "gc_freq",
    "gc_debug",      "seed",
    "deterministic", "data_parallel_degree",
    "dataloader",    "debug_moe_force_load_balance",
    "warmup_steps"};
constexpr std::array<std::string_view, 11> parallelism_without_influence{"disable_loss_parallel",
                                                                         "enable_async_tensor_parallel",
                                                                         "pipeline_parallel_split_points",
                                                                         "pipeline_parallel_layers_per_stage",
                                                                         "pipeline_parallel_schedule",
                                                                         "pipeline_parallel_schedule_csv",
                                                                         "pipeline_parallel_microbatch_size",
                                                                         "module_fqns_per_model_part",
                                                                         "context_parallel_rotate_method",
                                                                         "context_parallel_load_balancer",
                                                                         "spmd_backend"};
constexpr std::array<std::string_view, 6> optimizer_without_influence{"lr",  "beta1",        "beta2",
                                                                      "eps", "weight_decay", "betas"};

class TorchtitanFile {
public:
    TorchtitanFile(const json::Value& root, const FrontendQuestion& about)
        : about_(about), where_(root.where()), top_(root, "", std::string(whose), out_) {
        out_.job = about.job;
    }

    FrontendPlan read() {
        out_.job.runtime = "fsdp2";
        out_.job.strategy = runtime("fsdp2").strategies.front();
        parallelism();
        training();
        activation_checkpoint();
        optimizer();
        model();
        compile();
        top_.skip(tables_without_influence);
        top_.note_unknown("is refused by torchtitan's parser, unless a module of the user's extends it");
        return std::move(out_);
    }

private:
    SettingsSection section(std::string_view name) {
        return {top_.raw(name), std::string(name) + ".", std::string(whose), out_};
    }

    static void finish(SettingsSection& section) {
        section.note_unknown("is refused by torchtitan's parser, unless a module of the user's extends it");
    }

    void parallelism() {
        SettingsSection parallelism = section("parallelism");
        for (const char* key :
             {"tensor_parallel_degree", "pipeline_parallel_degree", "context_parallel_degree",
              "expert_parallel_degree", "expert_tensor_parallel_degree"}) {
            if (const auto degree = parallelism.raw(key); degree && degree->integer() != 1) {
                parallelism.refuse(key, "is " + degree->shown() +
                                            ", which is outside of what fsdplan models so far; expected 1");
            }
        }
        Mesh& mesh = out_.job.mesh;
        mesh.replicate = parallelism.integer("data_parallel_replicate_degree", 1, 1, most);
        mesh.shard = parallelism.integer("data_parallel_shard_degree", -1, -1, most);
        if (mesh.shard == 0) {
            parallelism.refuse("data_parallel_shard_degree",
                               "is 0; expected a number of ranks, or -1 for the rest");
        }
        if (mesh.shard < 0) {
            mesh.shard = about_.ranks / mesh.replicate;
            parallelism.note("data_parallel_shard_degree",
                             fmt::format("is -1, all ranks that are left: {}", mesh.shard));
        }
        if (checked_mul(mesh.replicate, mesh.shard, where_) != about_.ranks) {
            throw Error(ErrorKind::input, where_,
                        fmt::format("{} replicas x {} shards are not {} GPUs", mesh.replicate, mesh.shard,
                                    about_.ranks));
        }
        reshard_ = parallelism.word("fsdp_reshard_after_forward", "default", {"default", "always", "never"});
        if (const auto autograd = parallelism.raw("enable_compiled_autograd");
            autograd && autograd->boolean()) {
            parallelism.note("enable_compiled_autograd", "is simulated eagerly");
        }
        parallelism.skip(parallelism_without_influence);
        finish(parallelism);
    }

    void training() {
        SettingsSection training = section("training");
        TrainingJob& job = out_.job;
        job.batch = training.integer("local_batch_size", 8, 1, most);
        const std::int64_t global = training.integer("global_batch_size", -1, -1, most);
        const std::int64_t together = checked_mul(job.batch, about_.ranks, where_);
        if (global >= 0 && (global == 0 || global % together != 0)) {
            training.refuse("global_batch_size", fmt::format("is {}, no multiple of {} sequences x {} GPUs",
                                                             global, job.batch, about_.ranks));
        }
        job.accumulate = global < 0 ? 1 : global / together;
        job.no_sync = false;
        job.sequence = training.integer("seq_len", 2048, 1, most);
        job.clip_norm = training.number("max_norm", 1.0) > 0 ? std::optional(2.0) : std::nullopt;
        job.offload = training.boolean("enable_cpu_offload", false);
        job.param_dtype =
            dtype_from_name(training.word("mixed_precision_param", "bfloat16", {"bfloat16", "float32"}));
        job.reduce_dtype =
            dtype_from_name(training.word("mixed_precision_reduce", "float32", {"float32", "bfloat16"}));
        out_.trainable_dtype = dtype_from_name(training.word("dtype", "float32", {"float32", "bfloat16"}));
        training.skip(training_without_influence);
        if (const auto compiled = training.raw("compile"); compiled && compiled->boolean()) {
            training.note("compile", "is simulated eagerly");
        }
        finish(training);
    }

    void activation_checkpoint() {
        SettingsSection section = this->section("activation_checkpoint");
        using Mode = ActivationCheckpointing::Mode;
        ActivationCheckpointing& checkpointing = out_.job.activation_checkpointing;
        checkpointing = {.placement = ActivationCheckpointing::Placement::inside, .wrapped = true};
        const std::string mode =
            section.word("mode", "selective", {"none", "full", "selective", "memory_budget"});
        if (mode == "memory_budget") {
            section.refuse("mode",
                           "is memory_budget, which only the compiler knows; outside of what fsdplan "
                           "models so far");
        }
        const bool selective = mode == "selective";
        const std::string option = option_of(section, selective);
        if (mode == "full") {
            checkpointing.mode = Mode::blocks;
        } else if (selective && option == "op") {
            checkpointing.mode = Mode::selective;
        } else if (selective) {
            checkpointing.mode = Mode::every;
            const auto [end, error] =
                std::from_chars(option.data(), option.data() + option.size(), checkpointing.every);
            if (error != std::errc{} || end != option.data() + option.size() || checkpointing.every < 1) {
                section.refuse("selective_ac_option",
                               "is " + json::quote(option) + "; expected op or a positive number of layers");
            }
        }
        section.skip(std::array<std::string_view, 9>{
            "early_stop", "memory_budget", "visualize_memory_budget_pareto", "preserve_rng_state",
            "determinism_check", "debug", "per_op_sac_force_recompute_mm_shapes_by_fqns", "enable",
            "options"});
        finish(section);
    }

    static std::string option_of(SettingsSection& section, bool counts) {
        const auto given = section.raw("selective_ac_option");
        if (given && given->is_integer()) {
            return std::to_string(given->integer());  // TOML's number where a string is asked for
        }
        if (!counts) {
            if (given) {
                section.note("selective_ac_option", "has no effect unless mode is selective");
            }
            return "";
        }
        return section.word("selective_ac_option", "2");
    }

    void optimizer() {
        SettingsSection section = this->section("optimizer");
        const std::string name = section.word("name", "AdamW", {"AdamW", "Adam"});
        const std::string implementation =
            section.word("implementation", "fused", {"fused", "foreach", "for-loop"});
        out_.job.optimizer = {.kind = name == "Adam" ? "adam" : "adamw",
                              .implementation = implementation == "fused" ? Optimizer::Implementation::fused
                                                : implementation == "foreach"
                                                    ? Optimizer::Implementation::foreach
                                                    : Optimizer::Implementation::for_loop};
        if (const auto early = section.raw("early_step_in_backward"); early && early->boolean()) {
            section.refuse("early_step_in_backward", "is outside of what fsdplan models so far");
        }
        section.skip(optimizer_without_influence);
        finish(section);
    }

    void model() {
        SettingsSection section = this->section("model");
        for (const char* key : {"name", "flavor"}) {
            if (const auto given = section.raw(key)) {
                section.note(key,
                             "is " + given->shown() + ", which is not compared with the model given here");
            }
        }
        if (const auto converters = section.raw("converters"); converters && converters->size() > 0) {
            section.note("converters", "are not applied: the model is simulated as it is given");
        }
        section.skip(std::array<std::string_view, 4>{"tokenizer_path", "hf_assets_path",
                                                     "print_after_conversion", "vocab_size"});
        finish(section);
        for (const char* table : {"float8", "mx", "quantize"}) {
            if (top_.raw(table)) {
                top_.note(table, "has no effect here: the model is simulated as it is given");
            }
        }
        const ModuleTree& tree = about_.tree;
        if (!tree.find("layers") || !tree.find("tok_embeddings")) {
            throw Error(
                ErrorKind::input, where_,
                "torchtitan shards tok_embeddings, layers, norm and lm_head, and this model has no such "
                "modules; expected a model with model_type torchtitan_llama in its config.json");
        }
        const auto embedding = tree.find_parameter("tok_embeddings.weight");
        const auto head = tree.find_parameter(tree.find("lm_head") ? "lm_head.weight" : "output.weight");
        out_.policy = torchtitan_calls(
            tree, {.reshard_after_forward = reshard_, .weights_tied = embedding && embedding == head});
        out_.wrap.world_size = static_cast<int>(out_.job.mesh.shard);
    }

    void compile() {
        SettingsSection section = this->section("compile");
        if (const auto enabled = section.raw("enable"); enabled && enabled->boolean()) {
            section.note("enable", "is true, but the model is simulated eagerly");
        }
        section.skip(std::array<std::string_view, 3>{"components", "backend", "mode"});
        finish(section);
    }

    const FrontendQuestion& about_;
    FrontendPlan out_;
    std::string where_;
    SettingsSection top_;
    std::string reshard_;
};

}  // namespace

namespace builtin::frontend_file {

extern const FrontendInfo torchtitan;
constinit const FrontendInfo torchtitan{
    .name = "torchtitan",
    .option = "--torchtitan-config",
    .help = "TOML of torchtitan, as its llama3 is sharded",
    .read =
        [](const std::string& text, const std::string& file, const FrontendQuestion& about) {
            const json::Document document(frontend::toml_as_json(text, file), file);
            return TorchtitanFile(document.root(), about).read();
        },
    .write = frontend::write_torchtitan,
    .extension = "toml",
};

}  // namespace builtin::frontend_file
}  // namespace fsdplan
