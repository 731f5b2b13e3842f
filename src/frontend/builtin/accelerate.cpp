#include <algorithm>

#include "base/json.hpp"
#include "frontend/accelerated_plan.hpp"
#include "frontend/python_value.hpp"
#include "frontend/writers.hpp"
#include "frontend/yaml_file.hpp"

// A file of `accelerate config`.
namespace fsdplan {
namespace {

using frontend::or_error;

/// The fields of accelerate's ClusterConfig.
std::vector<std::string> configuration_keys() {
    return {"command_file",
            "commands",
            "compute_environment",
            "debug",
            "deepspeed_config",
            "distributed_type",
            "downcast_bf16",
            "dynamo_config",
            "enable_cpu_affinity",
            "fp8_config",
            "fsdp_config",
            "gpu_ids",
            "machine_rank",
            "main_process_ip",
            "main_process_port",
            "main_training_function",
            "megatron_lm_config",
            "mixed_precision",
            "mpirun_config",
            "num_machines",
            "num_processes",
            "parallelism_config",
            "rdzv_backend",
            "same_network",
            "tpu_env",
            "tpu_name",
            "tpu_use_cluster",
            "tpu_use_sudo",
            "tpu_vm",
            "tpu_zone",
            "use_cpu"};
}

class AccelerateFile {
public:
    AccelerateFile(const std::string& text, const std::string& file, const FrontendQuestion& about)
        : file_(file), about_(about), sections_(frontend::read_yaml(text, file)) {
        out_.job = about.job;
    }

    FrontendPlan read() {
        const std::string type = python_str(top("distributed_type"));
        if (type != "FSDP") {
            throw Error(ErrorKind::input, file_,
                        "distributed_type is " + type + "; expected FSDP, which is what fsdplan reads");
        }
        refuse_unknown();
        const PythonValue named = top("mixed_precision");
        const std::string precision =
            frontend::is_none(named) || named == PythonValue(false) ? "no" : python_str(named);
        const PythonArguments& section = sections_["fsdp_config"];
        report_unknown(section);
        const Environment environment = or_error(accelerate_environment(section, precision), file_);
        PythonArguments arguments;
        if (precision != "no") {
            arguments["mixed_precision_policy"] = precision;
        }
        const AcceleratePlugin plugin = or_error(accelerate_plugin(arguments, environment), file_);
        frontend::prepare_plan(plugin, precision, about_, file_, out_);
        report_keys_without_effect(section, plugin);
        report_other_sections();
        list_settings(section, plugin);
        out_.settings.push_back({"mixed_precision", precision, source(!frontend::is_none(named))});
        return std::move(out_);
    }

private:
    PythonValue top(std::string_view key) { return frontend::value_or_none(sections_[""], key); }

    /// accelerate refuses a key that its configuration does not have, but drops one of a section.
    void refuse_unknown() const {
        const std::vector<std::string> known = configuration_keys();
        const auto check = [&](const std::string& key) {
            if (std::ranges::find(known, key) == known.end()) {
                throw Error(ErrorKind::input, file_,
                            "accelerate stops with ValueError: unknown key " + json::quote(key) +
                                did_you_mean(key, known));
            }
        };
        for (const auto& [key, value] : sections_.at("")) {
            check(key);
        }
        for (const auto& [name, section] : sections_) {
            if (!name.empty()) {
                check(name);
            }
        }
    }

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

    static bool given(const PythonArguments& section, std::string_view key) {
        return std::ranges::any_of(section, [&](const auto& entry) { return long_key(entry.first) == key; });
    }

    std::string source(bool in_file) const { return in_file ? file_ : "accelerate's default"; }

    void report_keys_without_effect(const PythonArguments& section, const AcceleratePlugin& plugin) {
        if (plugin.version == 1 && given(section, "fsdp_reshard_after_forward")) {
            out_.notes.push_back(file_ +
                                 ": fsdp_reshard_after_forward does nothing in version 1; the strategy is " +
                                 python_str(plugin.sharding_strategy) + " (fsdp_sharding_strategy sets it)");
        }
        if (plugin.version == 2) {
            for (const char* key :
                 {"fsdp_sharding_strategy", "fsdp_backward_prefetch", "fsdp_forward_prefetch",
                  "fsdp_use_orig_params", "fsdp_sync_module_states"}) {
                if (given(section, key)) {
                    out_.notes.push_back(file_ + ": " + key + " has no effect in version 2");
                }
            }
        }
    }

    void report_other_sections() {
        const PythonValue processes = top("num_processes");
        const auto* number = std::get_if<std::int64_t>(&processes);
        if (number != nullptr && *number != about_.ranks) {
            out_.notes.push_back(file_ + ": num_processes is " + std::to_string(*number) + ", and --gpus " +
                                 std::to_string(about_.ranks) + " counts");
        }
        for (const char* name : {"parallelism_config", "dynamo_config", "fp8_config", "megatron_lm_config"}) {
            if (sections_.contains(name) && !sections_.at(name).empty()) {
                out_.notes.push_back(file_ + ": " + name + " is not simulated");
            }
        }
    }

    void list_settings(const PythonArguments& section, const AcceleratePlugin& plugin) {
        for (auto& [key, value] : frontend::plugin_settings(plugin, about_.model)) {
            const std::string name = "fsdp_" + key;
            out_.settings.push_back({name, std::move(value), source(given(section, name))});
        }
    }

    std::string file_;
    const FrontendQuestion& about_;
    std::map<std::string, PythonArguments, std::less<>> sections_;
    FrontendPlan out_;
};

}  // namespace

namespace builtin::frontend_file {

extern const FrontendInfo accelerate;
constinit const FrontendInfo accelerate{
    .name = "accelerate",
    .option = "--accelerate-config",
    .help = "YAML of `accelerate config`, as `accelerate launch` applies it to this model",
    .read = [](const std::string& text, const std::string& file,
               const FrontendQuestion& about) { return AccelerateFile(text, file, about).read(); },
    .write = frontend::write_accelerate,
    .extension = "yaml",
};

}  // namespace builtin::frontend_file
}  // namespace fsdplan
