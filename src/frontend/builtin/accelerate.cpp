#include <algorithm>

#include "frontend/python_value.hpp"
#include "frontend/yaml_file.hpp"

// A file of `accelerate config`.
namespace fsdplan {
namespace {

using Wrap = AcceleratePlugin::Wrap;

template <typename T>
T or_error(OrRefused<T> answer, const std::string& file) {
    if (const auto* error = std::get_if<FrontendError>(&answer)) {
        throw Error(ErrorKind::input, file,
                    "accelerate stops with " + error->error_type + ": " + error->message);
    }
    return std::get<T>(std::move(answer));
}

class AccelerateFile {
public:
    AccelerateFile(const std::string& file, const FrontendQuestion& about)
        : file_(file), about_(about), sections_(frontend::read_yaml(file)) {
        out_.job = about.job;
    }

    FrontendPlan read() {
        const std::string type = python_str(top("distributed_type"));
        if (type != "FSDP") {
            throw Error(ErrorKind::input, file_,
                        "distributed_type is " + type + "; expected FSDP, which is what fsdplan reads");
        }
        const PythonValue named = top("mixed_precision");
        precision_ = frontend::is_none(named) || named == PythonValue(false) ? "no" : python_str(named);
        const PythonArguments& section = sections_["fsdp_config"];
        report_unknown(section);
        const Environment environment = or_error(accelerate_environment(section, precision_), file_);
        PythonArguments arguments;
        if (precision_ != "no") {
            arguments["mixed_precision_policy"] = precision_;
        }
        plugin_ = or_error(accelerate_plugin(arguments, environment), file_);
        fill_job();
        AcceleratedModel model = or_error(
            accelerate_prepare(about_.tree, model_hints(about_.model, about_.tree), plugin_, about_.ranks),
            file_);
        out_.policy = std::move(model.policy);
        out_.wrap = std::move(model.options);
        checkpoint(std::move(model.checkpointed));
        report_effects(section);
        list_settings(section);
        return std::move(out_);
    }

private:
    PythonValue top(std::string_view key) { return frontend::value_or_none(sections_[""], key); }

    static std::string long_key(const std::string& key) {
        return key.starts_with("fsdp") ? key : "fsdp_" + key;
    }

    void report_unknown(const PythonArguments& section) {
        const std::vector<std::string> known = accelerate_keys();
        for (const auto& [key, value] : section) {
            if (std::ranges::find(known, long_key(key)) == known.end()) {
                out_.notes.push_back(file_ + ": " + key +
                                     " is no key of fsdp_config and is dropped without a word" +
                                     did_you_mean(long_key(key), known));
            }
        }
    }

    void fill_job() {
        TrainingJob& job = out_.job;
        job.runtime = plugin_.version == 2 ? "fsdp2" : "fsdp1";
        job.offload = plugin_.offload;
        job.param_dtype =
            plugin_.mixed_precision ? std::optional(plugin_.mixed_precision->param) : std::nullopt;
        job.reduce_dtype =
            plugin_.mixed_precision ? std::optional(plugin_.mixed_precision->reduce) : std::nullopt;
        if (plugin_.version == 2) {
            return;  // every call says itself whether it reshards
        }
        job.strategy = parse_strategy(python_str(plugin_.sharding_strategy), file_);
        job.use_orig_params = plugin_.use_orig_params.value_or(false);
        job.backward_prefetch = plugin_.backward_prefetch.value_or(BackwardPrefetch::none);
        job.forward_prefetch = plugin_.forward_prefetch.value_or(false);
        job.limit_all_gathers = plugin_.limit_all_gathers;
        if (plugin_.mixed_precision) {
            job.buffer_dtype = plugin_.mixed_precision->other;
        }
    }

    void checkpoint(std::vector<std::string> modules) {
        if (plugin_.activation_checkpointing) {
            ActivationCheckpointing& ac = out_.job.activation_checkpointing;
            ac.modules = std::move(modules);
            ac.placement = plugin_.version == 2 ? ActivationCheckpointing::Placement::outside
                                                : ActivationCheckpointing::Placement::inside;
        }
        if (precision_ != "no") {
            out_.trainable_dtype = DType::float32;
        }
    }

    void report_effects(const PythonArguments& section) {
        const auto note = [&](const std::string& text) { out_.notes.push_back(file_ + ": " + text); };
        const auto given = [&](const char* key) {
            return std::ranges::any_of(section,
                                       [&](const auto& entry) { return long_key(entry.first) == key; });
        };
        const auto* threshold = std::get_if<std::int64_t>(&plugin_.min_num_params);
        if (plugin_.wrap == Wrap::size && threshold != nullptr && *threshold <= 0) {
            note("fsdp_min_num_params of " + std::to_string(*threshold) +
                 " means no wrapping at all; PyTorch's own policy would wrap nearly everything");
        }
        if (plugin_.wrap == Wrap::none) {
            note("no fsdp_auto_wrap_policy: all blocks are one unit");
        }
        if (plugin_.version == 1 && given("fsdp_reshard_after_forward")) {
            note("fsdp_reshard_after_forward does nothing in version 1; the strategy is " +
                 python_str(plugin_.sharding_strategy) + " (fsdp_sharding_strategy sets it)");
        }
        if (plugin_.version == 2) {
            for (const char* key :
                 {"fsdp_sharding_strategy", "fsdp_backward_prefetch", "fsdp_forward_prefetch",
                  "fsdp_use_orig_params", "fsdp_sync_module_states"}) {
                if (given(key)) {
                    note(std::string(key) + " has no effect in version 2");
                }
            }
        }
        if (out_.trainable_dtype) {
            note(
                "with mixed_precision trainable parameters are stored in float32, whatever they are loaded "
                "in");
        }
    }

    void list_settings(const PythonArguments& section) {
        const auto add = [&](const std::string& key, const std::string& value) {
            const bool given =
                std::ranges::any_of(section, [&](const auto& entry) { return long_key(entry.first) == key; });
            out_.settings.push_back({key, value, given ? file_ : "accelerate's default"});
        };
        const auto shown = [](bool value) { return std::string(value ? "true" : "false"); };
        add("fsdp_version", std::to_string(plugin_.version));
        add("fsdp_auto_wrap_policy", plugin_.wrap == Wrap::none          ? "NO_WRAP"
                                     : plugin_.wrap == Wrap::transformer ? "TRANSFORMER_BASED_WRAP"
                                                                         : "SIZE_BASED_WRAP");
        if (plugin_.version == 2) {
            add("fsdp_reshard_after_forward", shown(frontend::truth(plugin_.reshard_after_forward)));
        } else {
            add("fsdp_sharding_strategy", python_str(plugin_.sharding_strategy));
            add("fsdp_use_orig_params", shown(out_.job.use_orig_params));
            add("fsdp_backward_prefetch", std::string(name(out_.job.backward_prefetch)));
            add("fsdp_forward_prefetch", shown(out_.job.forward_prefetch));
        }
        add("fsdp_offload_params", shown(plugin_.offload));
        add("fsdp_activation_checkpointing", shown(plugin_.activation_checkpointing));
        add("fsdp_state_dict_type", plugin_.state_dict_type);
    }

    std::string file_;
    const FrontendQuestion& about_;
    std::map<std::string, PythonArguments, std::less<>> sections_;
    std::string precision_;
    AcceleratePlugin plugin_;
    FrontendPlan out_;
};

}  // namespace

namespace builtin::frontend_file {

extern const FrontendInfo accelerate;
constinit const FrontendInfo accelerate{
    .name = "accelerate",
    .option = "--accelerate-config",
    .help = "YAML of `accelerate config`, as `accelerate launch` applies it to this model",
    .read = [](const std::string& file,
               const FrontendQuestion& about) { return AccelerateFile(file, about).read(); },
};

}  // namespace builtin::frontend_file
}  // namespace fsdplan
