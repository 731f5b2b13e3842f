#include <algorithm>
#include <array>

#include "frontend/python_value.hpp"

// accelerate.commands.launch and accelerate.commands.to_fsdp2 of accelerate 1.15.
namespace fsdplan {
namespace {

enum class Case : std::uint8_t { kept, lower };

/// A key of the section and the variable it becomes. Without a default the variable is only set when given.
struct Setting {
    std::string_view key;
    std::string_view variable;
    Case letters;
    PythonValue usual;
};

const std::vector<Setting>& settings() {
    static const std::vector<Setting> all{
        {"fsdp_version", "FSDP_VERSION", Case::kept, "1"},
        {"fsdp_sharding_strategy", "FSDP_SHARDING_STRATEGY", Case::kept, "FULL_SHARD"},
        {"fsdp_reshard_after_forward", "FSDP_RESHARD_AFTER_FORWARD", Case::lower, "true"},
        {"fsdp_offload_params", "FSDP_OFFLOAD_PARAMS", Case::lower, "false"},
        {"fsdp_min_num_params", "FSDP_MIN_NUM_PARAMS", Case::kept, std::int64_t{100'000'000}},
        {"fsdp_auto_wrap_policy", "FSDP_AUTO_WRAP_POLICY", Case::kept, {}},
        {"fsdp_transformer_layer_cls_to_wrap", "FSDP_TRANSFORMER_CLS_TO_WRAP", Case::kept, {}},
        {"fsdp_backward_prefetch", "FSDP_BACKWARD_PREFETCH", Case::kept, {}},
        {"fsdp_state_dict_type", "FSDP_STATE_DICT_TYPE", Case::kept, {}},
        {"fsdp_forward_prefetch", "FSDP_FORWARD_PREFETCH", Case::lower, "false"},
        {"fsdp_use_orig_params", "FSDP_USE_ORIG_PARAMS", Case::lower, "true"},
        {"fsdp_cpu_ram_efficient_loading", "FSDP_CPU_RAM_EFFICIENT_LOADING", Case::lower, "true"},
        {"fsdp_sync_module_states", "FSDP_SYNC_MODULE_STATES", Case::lower, "true"},
        {"fsdp_activation_checkpointing", "FSDP_ACTIVATION_CHECKPOINTING", Case::lower, "false"},
        {"fsdp_activation_checkpointing_offload", "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", Case::lower,
         "false"},
        {"fsdp_ignored_modules", "FSDP_IGNORED_MODULES", Case::kept, {}},
    };
    return all;
}

/// The strategy of version 1 as reshard_after_forward of version 2; other values stay.
PythonValue resharded(const PythonValue& value) {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr) {
        return value;
    }
    if (*text == "FULL_SHARD" || *text == "HYBRID_SHARD") {
        return true;
    }
    if (*text == "SHARD_GRAD_OP" || *text == "HYBRID_SHARD_ZERO2" || *text == "NO_SHARD") {
        return false;
    }
    return value;
}

}  // namespace

OrRefused<Environment> accelerate_environment(const PythonArguments& section,
                                              std::string_view mixed_precision) {
    return frontend::or_refused([&] {
        PythonArguments given;
        for (const auto& [key, value] : section) {
            given[key.starts_with("fsdp") ? key : "fsdp_" + key] = value;
        }
        const auto value_of = [&](const Setting& s) {
            const auto found = given.find(s.key);
            return found == given.end() ? s.usual : found->second;
        };
        const auto named = [&](std::string_view key) {
            return value_of(*std::ranges::find(settings(), key, &Setting::key));
        };
        if (frontend::truth(named("fsdp_cpu_ram_efficient_loading")) &&
            !frontend::truth(named("fsdp_sync_module_states"))) {
            frontend::refuse(FrontendRule::loading_without_sync, "ValueError", "fsdp_sync_module_states",
                             "fsdp_cpu_ram_efficient_loading needs fsdp_sync_module_states");
        }
        Environment out{{"ACCELERATE_MIXED_PRECISION", std::string(mixed_precision)}};
        for (const Setting& s : settings()) {
            const PythonValue value = value_of(s);
            if (frontend::is_none(value) && frontend::is_none(s.usual)) {
                continue;
            }
            const std::string text = python_str(value);
            out[std::string(s.variable)] = s.letters == Case::lower ? frontend::lower(text) : text;
        }
        return out;
    });
}

std::vector<std::string> accelerate_keys() {
    std::vector<std::string> out;
    for (const Setting& s : settings()) {
        out.emplace_back(s.key);
    }
    return out;
}

PythonArguments accelerate_to_fsdp2(const PythonArguments& section) {
    constexpr std::array<std::string_view, 4> dropped{"fsdp_backward_prefetch", "fsdp_forward_prefetch",
                                                      "fsdp_sync_module_states", "fsdp_use_orig_params"};
    if (section.contains("fsdp_version") && section.at("fsdp_version") == PythonValue(std::int64_t{2})) {
        return section;
    }
    PythonArguments out;
    for (const auto& [key, value] : section) {
        if (key == "fsdp_sharding_strategy" || key == "fsdp_reshard_after_forward") {
            out["fsdp_reshard_after_forward"] = resharded(value);
        } else if (std::ranges::find(dropped, key) == dropped.end()) {
            out[key] = value;
        }
    }
    if (!section.empty()) {
        out["fsdp_version"] = std::int64_t{2};
    }
    return out;
}

}  // namespace fsdplan
