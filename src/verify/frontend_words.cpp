#include "verify/frontend_words.hpp"

#include "frontend/python_value.hpp"
#include "verify/unit_rows.hpp"
#include "verify/words.hpp"

namespace fsdplan {
namespace {

std::string text(bool value) {
    return value ? "true" : "false";
}

template <typename T>
std::string or_null(const std::optional<T>& value) {
    return value ? text(*value) : "null";
}

std::string list_text(const std::vector<std::string>& list) {
    std::string out;
    for (const std::string& item : list) {
        out += (out.empty() ? "" : ", ") + json::quote(item);
    }
    return "[" + out + "]";
}

struct JsonText {
    std::string operator()(std::monostate /*none*/) const { return "null"; }
    std::string operator()(bool value) const { return text(value); }
    std::string operator()(std::int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return python_str(value); }
    std::string operator()(const std::string& value) const { return json::quote(value); }
    std::string operator()(const std::vector<std::string>& value) const { return list_text(value); }
    std::string operator()(const std::map<std::string, std::string>& value) const {
        std::string out;
        for (const auto& [key, dtype] : value) {
            out += (out.empty() ? "" : ", ") + json::quote(key) + ": " + json::quote(dtype);
        }
        return "{" + out + "}";
    }
};

std::string json_text(const PythonValue& value) {
    return std::visit(JsonText{}, value);
}

std::string precision_text(const AcceleratePlugin& plugin) {
    if (!plugin.mixed_precision) {
        return "null";
    }
    const AcceleratePlugin::Precision& p = *plugin.mixed_precision;
    const auto dtype = [](DType d) { return json::quote(name(d)); };
    const bool first = plugin.version == 1;
    return std::string(first ? R"({"MixedPrecision": {"param_dtype": )"
                             : R"({"MixedPrecisionPolicy": {"param_dtype": )") +
           dtype(p.param) + ", \"reduce_dtype\": " + dtype(p.reduce) +
           (first ? ", \"buffer_dtype\": " : ", \"output_dtype\": ") + dtype(p.other) +
           (first ? R"(, "keep_low_precision_grads": false, "cast_forward_inputs": false, )"
                    R"("cast_root_forward_inputs": true}})"
                  : R"(, "cast_forward_inputs": true}})");
}

std::string policy_text(AcceleratePlugin::Wrap wrap) {
    switch (wrap) {
        case AcceleratePlugin::Wrap::none:
            return "null";
        case AcceleratePlugin::Wrap::transformer:
            return "\"transformer_auto_wrap_policy\"";
        case AcceleratePlugin::Wrap::size:
            return "\"size_based_auto_wrap_policy\"";
    }
    return "";
}

std::string offload_text(const AcceleratePlugin& plugin) {
    if (plugin.version == 2) {
        return plugin.offload ? R"({"CPUOffloadPolicy": {"pin_memory": true}})" : "\"OffloadPolicy\"";
    }
    return R"({"CPUOffload": {"offload_params": )" + text(plugin.offload) + "}}";
}

/// `optim`: "" or "Optim"
std::string state_dict_text(const AcceleratePlugin& plugin, const std::string& optim) {
    if (plugin.state_dict_type == "FULL_STATE_DICT") {
        return "{\"Full" + optim + R"(StateDictConfig": {"offload_to_cpu": true, "rank0_only": true}})";
    }
    if (plugin.state_dict_type == "SHARDED_STATE_DICT") {
        return "{\"Sharded" + optim + R"(StateDictConfig": {"offload_to_cpu": true, "_use_dtensor": false}})";
    }
    return "null";
}

std::string recorded_reason(const FrontendError& error) {
    switch (error.rule) {
        case FrontendRule::unknown_name:
            return "other: '" + error.subject + "'";  // what a KeyError says
        case FrontendRule::unknown_number:
            return "value outside of an enumeration";
        case FrontendRule::no_boolean:
            return "a boolean key holds text that is not a boolean";
        case FrontendRule::no_number:
            return "a number was expected";
        case FrontendRule::unknown_policy:
            return "unknown auto_wrap_policy name";
        case FrontendRule::threshold_no_integer:
            return "min_num_params given to the plugin is not an int";
        case FrontendRule::reshard_needs_boolean:
            return "FSDP2 needs a bool for reshard_after_forward";
        case FrontendRule::reshard_needs_strategy:
            return "FSDP1 needs a strategy for reshard_after_forward";
        case FrontendRule::forward_prefetch_given:
            return "forward_prefetch given for FSDP2";
        case FrontendRule::local_state_dict:
            return "LOCAL_STATE_DICT with FSDP2";
        case FrontendRule::offload_without_checkpoint:
            return "offload of checkpoints without checkpointing";
        case FrontendRule::offload_of_version_1:
            return "offload of checkpoints with FSDP1";
        case FrontendRule::unknown_precision:
            return "unknown mixed precision name";
        case FrontendRule::incomplete_precision:
            return "mixed_precision_policy dict lacks a key or has an unknown dtype";
        case FrontendRule::loading_without_sync:
            return "RAM-efficient loading needs sync_module_states";
        case FrontendRule::class_absent:
            return "no module of the model has this class name";
        case FrontendRule::checkpoint_without_policy:
            return "activation checkpointing in FSDP2 needs a policy, there is none";
        case FrontendRule::no_input_embeddings:
            // The dash is U+2011, as transformers prints it.
            return "other: `get_input_embeddings` not auto\u2011handled for " + error.subject +
                   "; please override in the subclass.";
        case FrontendRule::unknown_fsdp_word:
            return "unknown word in the deprecated fsdp string";
        case FrontendRule::strategy_of_version_1:
            return "a strategy FSDP2 does not have, in the deprecated fsdp string";
    }
    return "";
}

}  // namespace

PythonValue python_value(const json::Value& value) {
    if (!value.is_object()) {
        return frontend::python_value(value);
    }
    std::map<std::string, std::string> out;
    for (const json::Value member : value.members()) {
        out[std::string(member.key())] = member.string();
    }
    return out;
}

PythonArguments python_arguments(const json::Value& object) {
    PythonArguments out;
    for (const json::Value member : object.members()) {
        out[std::string(member.key())] = python_value(member);
    }
    return out;
}

Fields recorded_fields(const json::Value& object) {
    Fields out;
    for (const json::Value member : object.members()) {
        out[std::string(member.key())] = json_text(member);
    }
    return out;
}

Fields shown_fields(const PythonArguments& arguments) {
    Fields out;
    for (const auto& [name, value] : arguments) {
        out[name] = json_text(value);
    }
    return out;
}

Fields shown_fields(const AcceleratePlugin& plugin) {
    return {
        {"fsdp_version", std::to_string(plugin.version)},
        {"sharding_strategy", json_text(plugin.sharding_strategy)},
        {"reshard_after_forward", json_text(plugin.reshard_after_forward)},
        {"backward_prefetch",
         plugin.backward_prefetch ? json::quote(name(*plugin.backward_prefetch)) : "null"},
        {"forward_prefetch", or_null(plugin.forward_prefetch)},
        {"mixed_precision_policy", precision_text(plugin)},
        {"auto_wrap_policy", policy_text(plugin.wrap)},
        {"transformer_cls_names_to_wrap", plugin.classes ? list_text(*plugin.classes) : "null"},
        {"min_num_params", json_text(plugin.min_num_params)},
        {"cpu_offload", offload_text(plugin)},
        {"ignored_modules", plugin.ignored_modules ? json::quote(*plugin.ignored_modules) : "null"},
        {"state_dict_type", json::quote(plugin.state_dict_type)},
        {"state_dict_config", state_dict_text(plugin, "")},
        {"optim_state_dict_config", state_dict_text(plugin, "Optim")},
        {"limit_all_gathers", text(plugin.limit_all_gathers)},
        {"use_orig_params", or_null(plugin.use_orig_params)},
        {"param_init_fn", plugin.sync_module_states.value_or(false) ? "\"lambda\"" : "null"},
        {"sync_module_states", or_null(plugin.sync_module_states)},
        {"activation_checkpointing", text(plugin.activation_checkpointing)},
        {"activation_checkpointing_offload", text(plugin.activation_checkpointing_offload)},
        {"cpu_ram_efficient_loading", text(plugin.cpu_ram_efficient_loading)},
    };
}

Fields changes(const Fields& base, const Fields& other) {
    Fields out;
    for (const auto& [name, value] : other) {
        const auto found = base.find(name);
        if (found == base.end() || found->second != value) {
            out[name] = value;
        }
    }
    return out;
}

void compare_fields(const std::string& where, const Fields& expected, const Fields& got, CaseReport& report) {
    const auto value_in = [](const Fields& fields, const std::string& name) {
        const auto found = fields.find(name);
        return found == fields.end() ? std::string("absent") : found->second;
    };
    Fields all = expected;
    all.insert(got.begin(), got.end());
    for (const auto& [name, value] : all) {
        report.compare(where + " " + name, value_in(expected, name), value_in(got, name));
    }
}

std::string shown_error(const FrontendError& error) {
    return shown_error(error.error_type, recorded_reason(error));
}

}  // namespace fsdplan
