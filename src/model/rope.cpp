#include "model/rope.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace fsdplan {
namespace {

constexpr std::array<std::string_view, 1> scaling_keys{"factor"};
constexpr std::array<std::string_view, 3> llama3_keys{"factor", "low_freq_factor", "high_freq_factor"};
constexpr std::array<std::string_view, 2> longrope_keys{"short_factor", "long_factor"};

struct RopeType {
    std::string_view name;
    std::span<const std::string_view> required;  ///< keys that transformers does not fill in itself
    bool reads_head_dim = false;                 ///< and fails when it is null
};
constexpr std::array rope_types{
    RopeType{"default", {}},
    RopeType{"dynamic", scaling_keys, true},
    RopeType{"linear", scaling_keys},
    RopeType{"llama3", llama3_keys},
    RopeType{"longrope", longrope_keys, true},
    RopeType{"proportional", {}},
    RopeType{"yarn", scaling_keys, true},
};

[[noreturn]] void refuse_type(const Config& config, const Rope& rope, const std::string& message) {
    for (const std::string_view key : {"rope_type", "type"}) {
        if (const std::optional<Config> at = rope.with(key)) {
            at->refuse(key, message);
        }
    }
    config.refuse("rope_parameters", message);
}

const RopeType& checked_type(const Config& config, const Rope& rope) {
    const auto* const found = std::ranges::find(rope_types, rope.type, &RopeType::name);
    if (found == rope_types.end()) {
        std::vector<std::string> known;
        known.reserve(rope_types.size());
        for (const RopeType& type : rope_types) {
            known.emplace_back(type.name);
        }
        refuse_type(
            config, rope,
            "unknown type of rotary embedding " + json::quote(rope.type) + did_you_mean(rope.type, known));
    }
    for (const std::string_view key : found->required) {
        // Without any object the type is the family's own default, which is complete.
        if (!rope.objects.empty() && !rope.with(key)) {
            refuse_type(config, rope,
                        "the type " + json::quote(rope.type) + " needs the key " + json::quote(key));
        }
    }
    return *found;
}

/// The length of a * b for vectors of these lengths, as torch broadcasts; nothing when they do not fit.
std::optional<std::int64_t> broadcast(std::int64_t a, std::int64_t b) {
    if (a == b || b == 1) {
        return a;
    }
    return a == 1 ? std::optional(b) : std::nullopt;
}

}  // namespace

std::optional<Config> Rope::with(std::string_view key) const {
    const auto found = std::ranges::find_if(objects, [key](const Config& object) { return object.has(key); });
    return found == objects.end() ? std::nullopt : std::optional(*found);
}

Rope rope_of_objects(std::vector<Config> objects) {
    Rope rope{.type = "default", .objects = std::move(objects)};
    for (const std::string_view key : {"rope_type", "type"}) {
        if (const std::optional<Config> at = rope.with(key)) {
            rope.type = at->text(key, "");
            break;
        }
    }
    return rope;
}

Rope rope_of(const Config& config) {
    for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
        const std::optional<Config> object = config.nested(key);
        if (object && object->value().size() > 0) {
            return rope_of_objects({*object});
        }
    }
    return {};
}

Rope rope_of_kind(const Config& config, const std::string& kind, bool scaled) {
    const std::optional<Config> scaling = config.nested("rope_scaling");
    const std::optional<Config> parameters = config.nested("rope_parameters");
    const std::optional<Config> own = parameters ? parameters->nested(kind) : std::nullopt;
    std::vector<Config> objects;
    if (scaling && scaled) {
        objects.push_back(*scaling);
    }
    if (own) {
        objects.push_back(*own);
    }
    Rope rope = rope_of_objects(std::move(objects));
    if (!parameters && !rope.with("rope_type")) {
        rope.type = "default";  // which stands there under the newer key, so the older one is not read
    }
    return rope;
}

double partial_factor(const Config& config, const Rope& rope, const RopeRules& rules) {
    const std::optional<Config> inside = rope.with("partial_rotary_factor");
    const Config& at = inside ? *inside : config;
    const std::string_view key = inside ? "partial_rotary_factor" : rules.partial_key;
    const double factor = at.number(key, rules.partial);
    if (!(factor >= 0.0 && factor <= 1.0)) {
        at.refuse(key, "expected a part of the head between 0 and 1");
    }
    return factor;
}

std::int64_t rotary_width(const Config& config, const Rope& rope, const RopeRules& rules,
                          std::int64_t head_dim, HeadDim attribute) {
    const RopeType& type = checked_type(config, rope);
    const auto rotated =
        static_cast<std::int64_t>(static_cast<double>(head_dim) * partial_factor(config, rope, rules));
    constexpr std::int64_t smallest_checked = 5;  // transformers lets the tiny heads of test models through
    if (attribute == HeadDim::given && head_dim >= smallest_checked && head_dim % 2 != 0 &&
        rotated == head_dim) {
        config.refuse("head_dim",
                      "rotary embedding needs an even head size, found " + std::to_string(head_dim));
    }
    if (attribute == HeadDim::null && type.reads_head_dim) {
        refuse_type(config, rope, "the type " + json::quote(rope.type) + " needs a head_dim in the file");
    }
    if (rope.type == "default" && !rules.partial_by_default) {
        return head_dim;
    }
    if (rope.type == "proportional") {
        return head_dim / 2 * 2;  // frequencies of the part that is not rotated are zeros
    }
    if (rope.type == "dynamic" && rotated == 2) {
        refuse_type(config, rope, "the type \"dynamic\" cannot rotate just 2 elements of a head");
    }
    // These two multiply the frequencies by another vector.
    std::int64_t factors = ceil_div(rotated, 2);
    if (rope.type == "longrope") {
        factors = static_cast<std::int64_t>(
            rope.with("short_factor").value_or(config).value().at("short_factor").size());
    } else if (rope.type == "yarn") {
        factors = rotated / 2;
    }
    const std::optional<std::int64_t> frequencies = broadcast(ceil_div(rotated, 2), factors);
    if (!frequencies) {
        refuse_type(config, rope,
                    "the type " + json::quote(rope.type) + " has " + std::to_string(factors) +
                        " factors for the " + std::to_string(rotated) +
                        " rotated elements of a head; expected one for two");
    }
    return 2 * *frequencies;
}

}  // namespace fsdplan
