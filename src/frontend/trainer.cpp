#include <algorithm>
#include <array>

#include "frontend/python_value.hpp"

// TrainingArguments._process_fsdp_args of transformers 5.24.
namespace fsdplan {
namespace {

using frontend::boolean_word;
using frontend::is_none;
using frontend::lower;
using frontend::refuse;

std::vector<std::string> words_of(const PythonValue& fsdp) {
    if (const auto* list = std::get_if<std::vector<std::string>>(&fsdp)) {
        return *list;
    }
    std::vector<std::string> out;
    if (const auto* text = std::get_if<std::string>(&fsdp)) {
        std::size_t begin = 0;
        while ((begin = text->find_first_not_of(" \t\n", begin)) != std::string::npos) {
            const std::size_t end = std::min(text->find_first_of(" \t\n", begin), text->size());
            out.push_back(text->substr(begin, end - begin));
            begin = end;
        }
    }
    return out;
}

/// The config with the deprecated words of `fsdp` in it; a key that is there already counts more.
void apply_words(const PythonValue& fsdp, std::int64_t version, PythonArguments& config) {
    constexpr std::array<std::string_view, 5> strategies{"full_shard", "shard_grad_op", "no_shard",
                                                         "hybrid_shard", "hybrid_shard_zero2"};
    for (const std::string& word : words_of(fsdp)) {
        if (std::ranges::find(strategies, lower(word)) != strategies.end()) {
            if (version == 2 && word != "full_shard" && word != "shard_grad_op") {
                refuse(FrontendRule::strategy_of_version_1, "ValueError", word,
                       "\"" + word + "\" needs version 1; version 2 has full_shard and shard_grad_op");
            }
            config.emplace("reshard_after_forward",
                           version == 2 ? PythonValue(word == "full_shard") : PythonValue(word));
        } else if (word == "offload") {
            config.emplace("cpu_offload", true);
        } else if (word != "auto_wrap") {
            refuse(FrontendRule::unknown_fsdp_word, "ValueError", word,
                   "\"" + word + "\" is none of the words full_shard, shard_grad_op, offload, auto_wrap");
        }
    }
}

std::string comma_list(const PythonValue& classes) {
    const auto* list = std::get_if<std::vector<std::string>>(&classes);
    if (list == nullptr) {
        return python_str(classes);
    }
    std::string out;
    for (const std::string& name : *list) {
        out += (out.empty() ? "" : ",") + name;
    }
    return out;
}

class Arguments {
public:
    Arguments(PythonArguments config, std::int64_t version) : config_(std::move(config)), version_(version) {}

    PythonArguments run() {
        out_["fsdp_version"] = version_;
        if (frontend::truth(or_default("cpu_offload", false))) {
            out_["cpu_offload"] = true;
        }
        policy();
        boolean("cpu_ram_efficient_loading", "false");
        out_["state_dict_type"] = or_default("state_dict_type", "FULL_STATE_DICT");
        if (config_.contains("activation_checkpointing")) {
            boolean("activation_checkpointing", "");
        }
        if (version_ == 2) {
            boolean("reshard_after_forward", true);
        } else {
            version_1();
        }
        return out_;
    }

private:
    PythonValue or_default(std::string_view key, const PythonValue& usual) const {
        const auto found = config_.find(key);
        return found == config_.end() ? usual : found->second;
    }

    void boolean(const std::string& key, const PythonValue& usual) {
        out_[key] = boolean_word(python_str(or_default(key, usual)));
    }

    // Case counts here; the plugin takes any.
    void policy() {
        constexpr std::array<std::string_view, 3> known{"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP",
                                                        "NO_WRAP"};
        const std::string name = python_str(or_default("auto_wrap_policy", "TRANSFORMER_BASED_WRAP"));
        if (std::ranges::find(known, name) == known.end()) {
            refuse(FrontendRule::unknown_policy, "ValueError", name,
                   "\"" + name + "\" is not one of TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP, NO_WRAP");
        }
        out_["auto_wrap_policy"] = name;
        const PythonValue threshold = or_default("min_num_params", std::int64_t{0});
        const PythonValue classes = or_default("transformer_layer_cls_to_wrap", {});
        const auto* number = std::get_if<std::int64_t>(&threshold);
        if (name == "SIZE_BASED_WRAP" && number != nullptr && *number > 0) {
            out_["min_num_params"] = threshold;
        } else if (name == "TRANSFORMER_BASED_WRAP" && !is_none(classes)) {
            out_["transformer_cls_names_to_wrap"] = comma_list(classes);
        }
    }

    void version_1() {
        out_["reshard_after_forward"] = lower(python_str(or_default("reshard_after_forward", "full_shard")));
        boolean("forward_prefetch", "false");
        out_["backward_prefetch"] =
            frontend::upper(python_str(or_default("backward_prefetch", "NO_PREFETCH")));
        boolean("use_orig_params", "true");
        boolean("sync_module_states", "true");
        if (config_.contains("limit_all_gathers")) {
            boolean("limit_all_gathers", "");
        }
    }

    PythonArguments config_;
    std::int64_t version_;
    PythonArguments out_;
};

}  // namespace

OrRefused<std::optional<PythonArguments>> trainer_plugin_arguments(const TrainerSettings& settings) {
    return frontend::or_refused([&]() -> std::optional<PythonArguments> {
        if (!frontend::truth(settings.fsdp)) {
            return std::nullopt;
        }
        PythonArguments config;
        for (const auto& [key, value] : settings.config) {
            config[key.starts_with("fsdp_") ? key.substr(5) : key] = value;
        }
        const PythonValue version = frontend::value_or_none(config, "version");
        const std::int64_t number = is_none(version) ? 2 : frontend::integer_word(python_str(version));
        apply_words(settings.fsdp, number, config);
        return Arguments(std::move(config), number).run();
    });
}

}  // namespace fsdplan
