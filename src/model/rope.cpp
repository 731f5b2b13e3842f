#include "model/rope.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace fsdplan {
namespace {

constexpr std::array<std::string_view, 1> scaling_keys{"factor"};
constexpr std::array<std::string_view, 3> llama3_keys{"factor", "low_freq_factor", "high_freq_factor"};
constexpr std::array<std::string_view, 2> longrope_keys{"short_factor", "long_factor"};

// The keys that transformers' validation insists on; it fills in the others itself.
struct RopeType {
    std::string_view name;
    std::span<const std::string_view> required;
};
constexpr std::array rope_types{
    RopeType{"default", {}},         RopeType{"dynamic", scaling_keys},   RopeType{"linear", scaling_keys},
    RopeType{"llama3", llama3_keys}, RopeType{"longrope", longrope_keys}, RopeType{"proportional", {}},
    RopeType{"yarn", scaling_keys},
};

void check_type(const Config& config, const Rope& rope) {
    const Config& at = rope.parameters ? *rope.parameters : config;
    const std::string_view key = at.has("rope_type") ? "rope_type" : "type";
    const auto found = std::ranges::find(rope_types, rope.type, &RopeType::name);
    if (found == rope_types.end()) {
        std::vector<std::string> known;
        for (const RopeType& type : rope_types) {
            known.emplace_back(type.name);
        }
        at.refuse(key, "unknown type of rotary embedding " + json::quote(rope.type) +
                           did_you_mean(rope.type, known));
    }
    for (const std::string_view required : found->required) {
        if (!at.value().find(required)) {
            at.refuse(key, "the type " + json::quote(rope.type) + " needs the key " + json::quote(required));
        }
    }
}

double partial_factor(const Config& config, const Rope& rope, const RopeRules& rules) {
    const bool inside = rope.parameters && rope.parameters->has("partial_rotary_factor");
    const Config& at = inside ? *rope.parameters : config;
    const std::string_view key = inside ? "partial_rotary_factor" : rules.partial_key;
    const double factor = at.number(key, rules.partial);
    if (!(factor >= 0.0 && factor <= 1.0)) {
        at.refuse(key, "expected a part of the head between 0 and 1");
    }
    return factor;
}

}  // namespace

Rope rope_of_parameters(const std::optional<Config>& parameters) {
    if (!parameters || parameters->value().size() == 0) {
        return {};
    }
    return {.type = parameters->text("rope_type", parameters->text("type", "default")),
            .parameters = parameters};
}

Rope rope_of(const Config& config) {
    for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
        const std::optional<Config> parameters = config.nested(key);
        if (parameters && parameters->value().size() > 0) {
            return rope_of_parameters(parameters);
        }
    }
    return {};
}

std::int64_t rotary_width(const Config& config, const Rope& given, const RopeRules& rules,
                          std::int64_t head_dim, bool head_dim_is_checked) {
    Rope rope = given;
    if (rules.only_longrope) {
        if (rope.type == "su" || rope.type == "yarn") {
            rope.type = "longrope";
        }
        if (rope.type != "default" && rope.type != "longrope") {
            rope.parameters->refuse(
                rope.parameters->has("rope_type") ? "rope_type" : "type",
                "this family knows the types \"default\" and \"longrope\", found " + json::quote(rope.type));
        }
    }
    check_type(config, rope);
    const double partial = partial_factor(config, rope, rules);
    const auto rotated = static_cast<std::int64_t>(static_cast<double>(head_dim) * partial);
    constexpr std::int64_t smallest_checked = 5;  // test models with tiny heads are let through
    if (head_dim_is_checked && head_dim >= smallest_checked && head_dim % 2 != 0 && rotated == head_dim) {
        config.refuse("head_dim",
                      "rotary embedding needs an even head size, found " + std::to_string(head_dim));
    }
    if (rope.type == "default" && !rules.partial_by_default) {
        return head_dim;
    }
    if (rope.type == "proportional") {
        return head_dim / 2 * 2;  // frequencies of the part that is not rotated are zeros
    }
    if (rope.type == "longrope") {
        const std::size_t factors = rope.parameters->value().at("short_factor").size();
        const auto frequencies = static_cast<std::size_t>(ceil_div(rotated, 2));
        if (factors != frequencies && factors != 1) {
            rope.parameters->refuse("short_factor", "expected " + std::to_string(frequencies) +
                                                        " factors, one for each frequency, found " +
                                                        std::to_string(factors));
        }
    }
    return rotated;
}

}  // namespace fsdplan
