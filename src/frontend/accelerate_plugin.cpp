#include <algorithm>
#include <array>

#include "frontend/python_value.hpp"

// accelerate.utils.dataclasses.FullyShardedDataParallelPlugin.__post_init__ of accelerate 1.15.
namespace fsdplan {
namespace {

using frontend::boolean_word;
using frontend::is_none;
using frontend::refuse;

// In the order of their numbers, from 1.
constexpr std::array<std::string_view, 5> strategies{"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD",
                                                     "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"};
constexpr std::array<std::string_view, 3> state_dict_types{"FULL_STATE_DICT", "LOCAL_STATE_DICT",
                                                           "SHARDED_STATE_DICT"};
constexpr std::array<std::string_view, 2> prefetches{"BACKWARD_PRE", "BACKWARD_POST"};
constexpr std::array<std::string_view, 3> policies{"NO_WRAP", "TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP"};

std::string one_of(std::span<const std::string_view> names) {
    std::string out = "one of ";
    for (const std::string_view name : names) {
        out += (name == names.front() ? "" : ", ") + std::string(name);
    }
    return out;
}

/// Enumeration(int(text)) for digits, else Enumeration[text.upper()].
std::string member(std::span<const std::string_view> names, const std::string& text) {
    const bool digits =
        !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
    if (digits) {
        const std::int64_t number = frontend::integer_word(text);
        if (number < 1 || number > static_cast<std::int64_t>(names.size())) {
            refuse(FrontendRule::unknown_number, "ValueError", text,
                   text + " is none of 1 to " + std::to_string(names.size()) + " (" + one_of(names) + ")");
        }
        return std::string(names[static_cast<std::size_t>(number - 1)]);
    }
    std::string name = frontend::upper(text);
    if (std::ranges::find(names, name) == names.end()) {
        refuse(FrontendRule::unknown_name, "KeyError", name, "\"" + text + "\" is not " + one_of(names));
    }
    return name;
}

// accelerate drops the underscore of the fifth strategy.
std::string strategy(const std::string& text) {
    return frontend::upper(text) == "HYBRID_SHARD_ZERO2" ? std::string(strategies.back())
                                                         : member(strategies, text);
}

class Construction {
public:
    Construction(const PythonArguments& arguments, const Environment& environment)
        : arguments_(arguments), environment_(environment) {}

    AcceleratePlugin run() {
        const PythonValue version = given("fsdp_version");
        out_.version = is_none(version) ? frontend::integer_word(variable("VERSION").value_or("1"))
                                        : frontend::integer_word(python_str(version));
        strategy_and_reshard();
        out_.offload = flag("cpu_offload", "OFFLOAD_PARAMS");
        backward_prefetch();
        state_dict_type();
        auto_wrap_policy();
        version_1_flags();
        checkpointing();
        const PythonValue ignored = given("ignored_modules");
        out_.ignored_modules =
            is_none(ignored) ? variable("IGNORED_MODULES") : std::optional(python_str(ignored));
        out_.cpu_ram_efficient_loading = flag("cpu_ram_efficient_loading", "CPU_RAM_EFFICIENT_LOADING");
        if (out_.version == 1 && out_.cpu_ram_efficient_loading) {
            out_.sync_module_states = true;  // whatever was said
        }
        if (const PythonValue limit = given("limit_all_gathers"); !is_none(limit)) {
            out_.limit_all_gathers = frontend::truth(limit);
        }
        mixed_precision();
        return out_;
    }

private:
    PythonValue given(std::string_view name) const { return frontend::value_or_none(arguments_, name); }

    std::optional<std::string> variable(std::string_view name) const {
        const auto found = environment_.find("FSDP_" + std::string(name));
        return found == environment_.end() ? std::nullopt : std::optional(found->second);
    }

    bool flag(std::string_view argument, std::string_view name) const {
        const PythonValue value = given(argument);
        return is_none(value) ? boolean_word(variable(name).value_or("False")) : frontend::truth(value);
    }

    void strategy_and_reshard() {
        out_.sharding_strategy = given("sharding_strategy");
        if (out_.version == 1) {
            if (is_none(out_.sharding_strategy)) {
                out_.sharding_strategy = variable("SHARDING_STRATEGY").value_or("FULL_SHARD");
            }
            if (const auto* text = std::get_if<std::string>(&out_.sharding_strategy)) {
                out_.sharding_strategy = strategy(*text);
            }
        }
        out_.reshard_after_forward = given("reshard_after_forward");
        if (is_none(out_.reshard_after_forward) && is_none(out_.sharding_strategy)) {
            out_.reshard_after_forward =
                variable("RESHARD_AFTER_FORWARD").value_or(out_.version == 2 ? "true" : "FULL_SHARD");
        }
        if (const auto* text = std::get_if<std::string>(&out_.reshard_after_forward)) {
            out_.reshard_after_forward =
                out_.version == 2 ? PythonValue(boolean_word(*text)) : PythonValue(strategy(*text));
        }
        const bool boolean = std::holds_alternative<bool>(out_.reshard_after_forward);
        const std::string shown = python_str(out_.reshard_after_forward);
        if (out_.version == 2 && !boolean) {
            refuse(FrontendRule::reshard_needs_boolean, "ValueError", shown,
                   "reshard_after_forward of version 2 is true or false, not " + shown);
        }
        if (out_.version == 1 && boolean) {
            refuse(FrontendRule::reshard_needs_strategy, "ValueError", shown,
                   "reshard_after_forward of version 1 is a strategy, not " + shown);
        }
    }

    void backward_prefetch() {
        PythonValue value = given("backward_prefetch");
        if (const auto text = variable("BACKWARD_PREFETCH"); is_none(value) && text) {
            value = *text;
        }
        if (is_none(value) || frontend::upper(python_str(value)) == "NO_PREFETCH") {
            return;
        }
        const std::string name = member(prefetches, python_str(value));
        if (out_.version != 2) {  // which knows none and says so in a warning only
            out_.backward_prefetch =
                name == prefetches.front() ? BackwardPrefetch::pre : BackwardPrefetch::post;
        }
    }

    void state_dict_type() {
        const PythonValue value = given("state_dict_type");
        const char* usual = out_.version == 1 ? "FULL_STATE_DICT" : "SHARDED_STATE_DICT";
        out_.state_dict_type =
            member(state_dict_types,
                   is_none(value) ? variable("STATE_DICT_TYPE").value_or(usual) : python_str(value));
        if (out_.version == 2 && out_.state_dict_type == "LOCAL_STATE_DICT") {
            refuse(FrontendRule::local_state_dict, "ValueError", out_.state_dict_type,
                   "version 2 has no LOCAL_STATE_DICT; use SHARDED_STATE_DICT or FULL_STATE_DICT");
        }
    }

    void auto_wrap_policy() {
        const PythonValue value = given("auto_wrap_policy");
        const std::string text =
            is_none(value) ? variable("AUTO_WRAP_POLICY").value_or("NO_WRAP") : python_str(value);
        const std::string name = frontend::upper(text);
        if (std::ranges::find(policies, name) == policies.end()) {
            refuse(FrontendRule::unknown_policy, "ValueError", text,
                   "\"" + text + "\" is not " + one_of(policies));
        }
        if (name == "TRANSFORMER_BASED_WRAP") {
            out_.wrap = AcceleratePlugin::Wrap::transformer;
            classes();
        } else if (name == "SIZE_BASED_WRAP") {
            out_.wrap = AcceleratePlugin::Wrap::size;
            threshold();
        }
    }

    // Nothing is stripped: a blank after a comma belongs to the name.
    void classes() {
        PythonValue value = given("transformer_cls_names_to_wrap");
        if (const auto text = variable("TRANSFORMER_CLS_TO_WRAP"); is_none(value) && text) {
            value = *text;
        }
        if (const auto* list = std::get_if<std::vector<std::string>>(&value)) {
            out_.classes = *list;
        } else if (const auto* text = std::get_if<std::string>(&value)) {
            out_.classes.emplace();
            std::size_t begin = 0;
            for (std::size_t comma = 0; comma != std::string::npos; begin = comma + 1) {
                comma = text->find(',', begin);
                out_.classes->push_back(text->substr(begin, comma - begin));
            }
        }
    }

    void threshold() {
        out_.min_num_params = given("min_num_params");
        if (is_none(out_.min_num_params)) {
            out_.min_num_params = frontend::integer_word(variable("MIN_NUM_PARAMS").value_or("0"));
        } else if (!std::holds_alternative<std::int64_t>(out_.min_num_params) &&
                   !std::holds_alternative<bool>(out_.min_num_params)) {  // a bool is an int
            const std::string shown = python_str(out_.min_num_params);
            refuse(FrontendRule::threshold_no_integer, "ValueError", shown,
                   "min_num_params is an integer, not " + shown);
        }
    }

    void version_1_flags() {
        if (out_.version == 1) {
            out_.use_orig_params = flag("use_orig_params", "USE_ORIG_PARAMS");
            out_.sync_module_states = flag("sync_module_states", "SYNC_MODULE_STATES");
            out_.forward_prefetch = flag("forward_prefetch", "FORWARD_PREFETCH");
            return;
        }
        if (out_.version == 2) {
            if (!is_none(given("forward_prefetch"))) {
                refuse(FrontendRule::forward_prefetch_given, "ValueError",
                       python_str(given("forward_prefetch")), "version 2 takes no forward_prefetch");
            }
            return;
        }
        // Any other version has neither's defaults.
        const auto only_given = [&](std::string_view name) {
            const PythonValue value = given(name);
            return is_none(value) ? std::nullopt : std::optional(frontend::truth(value));
        };
        out_.use_orig_params = only_given("use_orig_params");
        out_.sync_module_states = only_given("sync_module_states");
        out_.forward_prefetch = only_given("forward_prefetch");
    }

    void checkpointing() {
        out_.activation_checkpointing = flag("activation_checkpointing", "ACTIVATION_CHECKPOINTING");
        out_.activation_checkpointing_offload =
            flag("activation_checkpointing_offload", "ACTIVATION_CHECKPOINTING_OFFLOAD");
        if (!out_.activation_checkpointing_offload) {
            return;
        }
        if (!out_.activation_checkpointing) {
            refuse(FrontendRule::offload_without_checkpoint, "ValueError", "true",
                   "activation_checkpointing_offload needs activation_checkpointing");
        }
        if (out_.version != 2) {
            refuse(FrontendRule::offload_of_version_1, "ValueError", "true",
                   "activation_checkpointing_offload needs version 2");
        }
    }

    static std::optional<DType> precision_named(std::string_view name) {
        if (name == "fp8" || name == "bf16") {
            return DType::bfloat16;
        }
        return name == "fp16"   ? std::optional(DType::float16)
               : name == "fp32" ? std::optional(DType::float32)
                                : std::nullopt;
    }

    void mixed_precision() {
        const PythonValue value = given("mixed_precision_policy");
        if (const auto* name = std::get_if<std::string>(&value)) {
            const std::optional<DType> dtype = precision_named(*name);
            if (!dtype) {
                refuse(FrontendRule::unknown_precision, "ValueError", *name,
                       "\"" + *name + "\" is not one of bf16, fp16, fp32, fp8");
            }
            out_.mixed_precision = {.param = *dtype, .reduce = *dtype, .other = *dtype};
        } else if (const auto* dict = std::get_if<std::map<std::string, std::string>>(&value)) {
            const auto dtype = [&](const std::string& key) {
                const auto found = dict->find(key);
                const auto known = found == dict->end() ? std::nullopt : dtype_from_name(found->second);
                if (!known) {
                    refuse(FrontendRule::incomplete_precision, "ValueError", key,
                           "mixed_precision_policy needs " + key + ", one of bfloat16, float16, float32");
                }
                return *known;
            };
            const DType param = dtype("param_dtype");
            const DType reduce = dtype("reduce_dtype");
            const DType other = dtype(out_.version == 1 ? "buffer_dtype" : "output_dtype");
            out_.mixed_precision = {.param = param, .reduce = reduce, .other = other};
        }
    }

    const PythonArguments& arguments_;
    const Environment& environment_;
    AcceleratePlugin out_;
};

}  // namespace

OrRefused<AcceleratePlugin> accelerate_plugin(const PythonArguments& arguments,
                                              const Environment& environment) {
    return frontend::or_refused([&] { return Construction(arguments, environment).run(); });
}

}  // namespace fsdplan
