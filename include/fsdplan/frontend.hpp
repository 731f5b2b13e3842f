#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fsdplan/base.hpp"
#include "fsdplan/job.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/wrap.hpp"

// What other tools' settings turn into: accelerate, DeepSpeed, torchtitan, the transformers Trainer.
namespace fsdplan {

/// A value as Python has it. A map is a dict of names, as in a mixed precision policy.
using PythonValue = std::variant<std::monostate, bool, std::int64_t, double, std::string,
                                 std::vector<std::string>, std::map<std::string, std::string>>;
/// Keyword arguments, or the section of a settings file.
using PythonArguments = std::map<std::string, PythonValue, std::less<>>;
/// Environment variables that a launcher sets for the training script.
using Environment = std::map<std::string, std::string, std::less<>>;

/// str(value)
std::string python_str(const PythonValue& value);

/// Why a front end stops before torch sees anything.
enum class FrontendRule : std::uint8_t {
    unknown_name,                ///< a KeyError: `subject` is no member of the enumeration
    unknown_number,              ///< a number outside of an enumeration
    no_boolean,                  ///< text that is no truth value
    no_number,                   ///< text that is no integer
    unknown_policy,              ///< auto_wrap_policy
    threshold_no_integer,        ///< min_num_params, as an argument
    reshard_needs_boolean,       ///< version 2
    reshard_needs_strategy,      ///< version 1
    forward_prefetch_given,      ///< version 2 has none
    local_state_dict,            ///< version 2 has none
    offload_without_checkpoint,  ///< activation_checkpointing_offload alone
    offload_of_version_1,        ///< activation_checkpointing_offload
    unknown_precision,
    incomplete_precision,  ///< a dict without one of its three dtypes, or with an unknown one
    loading_without_sync,  ///< cpu_ram_efficient_loading without sync_module_states
    class_absent,          ///< no module of the model is of the class `subject`
    checkpoint_without_policy,
    no_input_embeddings,  ///< the model raises where it is asked for them
    unknown_fsdp_word,    ///< in the Trainer's `fsdp`
    strategy_of_version_1,
};

/// A front end's own error: Python's class, what it is about, and what to change.
struct FrontendError {
    FrontendRule rule{};
    std::string error_type;  ///< "ValueError"
    std::string subject;     ///< the value at fault
    std::string message;
};

/// An answer, or how the front end refuses.
template <typename T>
using OrRefused = std::variant<T, FrontendError>;

/// accelerate's FullyShardedDataParallelPlugin after construction.
struct AcceleratePlugin {
    enum class Wrap : std::uint8_t { none, transformer, size };
    struct Precision {
        DType param{};
        DType reduce{};
        DType other{};  ///< of buffers (version 1) or outputs (version 2)
    };

    std::int64_t version = 1;
    /// A Strategy's name, or a number that was given in place of one and is passed on as it is.
    PythonValue sharding_strategy;
    PythonValue reshard_after_forward;  ///< version 2: a bool; else as `sharding_strategy`
    std::optional<BackwardPrefetch> backward_prefetch;
    std::optional<bool> forward_prefetch;
    std::optional<Precision> mixed_precision;
    Wrap wrap = Wrap::none;
    std::optional<std::vector<std::string>> classes;  ///< absent: those that the model will not split
    PythonValue min_num_params;
    bool offload = false;
    std::optional<std::string> ignored_modules;  ///< a regular expression over module paths
    std::string state_dict_type;                 ///< "FULL_STATE_DICT", …
    bool limit_all_gathers = true;
    std::optional<bool> use_orig_params;
    std::optional<bool> sync_module_states;
    bool activation_checkpointing = false;
    bool activation_checkpointing_offload = false;
    bool cpu_ram_efficient_loading = false;
};

/// FullyShardedDataParallelPlugin(**arguments) of accelerate 1.15: an argument counts first, then the
/// environment, then the default.
OrRefused<AcceleratePlugin> accelerate_plugin(const PythonArguments& arguments,
                                              const Environment& environment);

/// What `accelerate launch` makes of the `fsdp_config` section of its YAML.
OrRefused<Environment> accelerate_environment(const PythonArguments& section,
                                              std::string_view mixed_precision);

/// The keys of that section, in full; others are dropped.
std::vector<std::string> accelerate_keys();

/// What `accelerate to-fsdp2` makes of a section.
PythonArguments accelerate_to_fsdp2(const PythonArguments& section);

/// `fsdp` and `fsdp_config` of transformers' TrainingArguments.
struct TrainerSettings {
    PythonValue fsdp;  ///< a bool, text or list of words
    PythonArguments config;
};
/// The plugin's arguments that the Trainer passes; nothing when it does not shard.
OrRefused<std::optional<PythonArguments>> trainer_plugin_arguments(const TrainerSettings& settings);

/// What accelerate reads off a model beside its modules.
struct ModelHints {
    std::vector<std::string> no_split_classes;
    std::optional<std::string> input_embeddings;   ///< path
    std::optional<std::string> output_embeddings;  ///< path
    std::optional<std::string> final_norm;         ///< path
    bool weights_tied = false;                     ///< input and output embeddings are one parameter
};

/// The hints as the module tree tells them: a model of transformers by the names of its modules, another one
/// has no embeddings that accelerate could ask for.
ModelHints model_hints(const ModelGraph& graph, const ModuleTree& tree);

/// What Accelerator.prepare() does to a model.
struct AcceleratedModel {
    PolicySpec policy;
    WrapOptions options;
    /// Paths inside of checkpoint wrappers: version 1 wraps inside of units, version 2 around them.
    std::vector<std::string> checkpointed;
};
OrRefused<AcceleratedModel> accelerate_prepare(const ModuleTree& tree, const ModelHints& hints,
                                               const AcceleratePlugin& plugin, int world_size);

/// The dtype in which prepare() stores a parameter (of version 1: a unit) that was loaded in another.
/// `mixed_precision`: "no", "fp16", …
DType accelerate_stored(DType loaded, bool trainable, std::string_view mixed_precision);

/// torchtitan's settings that decide its fully_shard calls (parallelism, training, model).
struct TorchtitanSettings {
    std::string reshard_after_forward = "default";  ///< "always", "never" or "default"
    bool pipeline = false;
    bool weights_tied = false;
};
/// The fully_shard calls of torchtitan 0.3's llama3, in their order.
PolicySpec torchtitan_calls(const ModuleTree& tree, const TorchtitanSettings& settings);

/// What a settings file is read for.
struct FrontendQuestion {
    const ModelGraph& model;
    const ModuleTree& tree;
    TrainingJob job;  ///< what the file does not say
    int ranks = 1;    ///< that the file is launched on
};

/// A settings file as its front end really applies it to one model.
struct FrontendPlan {
    /// Its mesh has more than one rank where the file decides how the ranks are split.
    TrainingJob job;
    PolicySpec policy;
    WrapOptions wrap;
    std::optional<DType> trainable_dtype;  ///< trainable parameters are raised to it before they are sharded
    struct Setting {
        std::string name;
        std::string value;
        std::string from;  ///< the file, or whose default it is
    };
    std::vector<Setting> settings;   ///< every default spelled out
    std::vector<std::string> notes;  ///< keys that are unknown or without effect, and what surprises
};

/// A plan that is to be written down for a front end.
struct PlanToWrite {
    const ModelGraph& model;
    const ModuleTree& tree;
    const TrainingJob& job;
    const WrapPlan& plan;
};

/// A front end whose settings files can be read. An entry is one file in src/frontend/builtin.
struct FrontendInfo {
    std::string_view name;
    std::string_view option;  ///< "--accelerate-config"
    std::string_view help;
    /// Throws Error(input) for a text that cannot be read or that the front end itself refuses; `file` is its
    /// name in messages.
    FrontendPlan (*read)(const std::string& text, const std::string& file, const FrontendQuestion& about);
    /// The settings that come closest to a plan; throws Error(input) for what they have no words for. Null:
    /// nothing is written for this front end. See write_settings().
    std::string (*write)(const PlanToWrite& plan) = nullptr;
    std::string_view extension{};  ///< of the files that it writes: "yaml", "deepspeed.json"
};

/// FrontendInfo::read of a file.
FrontendPlan read_settings(const FrontendInfo& info, const std::string& file, const FrontendQuestion& about);

/// The text of a settings file that, read again, gives the job and the units of `plan`. What the front end
/// leaves to the training script (batch, optimizer, loss, …) is in a comment at most. Throws Error(input)
/// that names the first difference when its settings cannot say the plan.
std::string write_settings(const FrontendInfo& info, const PlanToWrite& plan);

namespace builtin {
std::span<const FrontendInfo* const> frontends();
}  // namespace builtin

}  // namespace fsdplan
