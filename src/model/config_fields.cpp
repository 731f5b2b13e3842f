#include "model/config_fields.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace fsdplan {
namespace {

// transformers' ALLOWED_ATTN_LAYER_TYPES.
constexpr std::array<std::string_view, 14> known_layer_types{
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "window_attention",
    "indexed_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
    "minimax_m3_sparse",
    "conv",
    "moe",
    "hybrid",
    "hybrid_sliding",
    "reference_sliding_attention",
    "linear_attention",
};

struct OldName {
    std::string_view old_name;
    std::string_view name;
};
constexpr std::array old_layer_types{
    OldName{"attention", "full_attention"},
    OldName{"deepseek_sparse_attention", "indexed_attention"},
    OldName{"mamba", "linear_attention"},
    OldName{"qwen_sparse_attention", "indexed_attention"},
};

std::string present_name(const std::string& layer_type) {
    const auto* const found = std::ranges::find(old_layer_types, layer_type, &OldName::old_name);
    return found == old_layer_types.end() ? layer_type : std::string(found->name);
}

void refuse_null(const Config& config, std::initializer_list<std::string_view> keys) {
    for (const std::string_view key : keys) {
        if (is_null(config, key)) {
            config.value().at(key).fail("an integer");
        }
    }
}

}  // namespace

bool is_null(const Config& config, std::string_view key) {
    const std::optional<json::Value> value = config.value().find(key);
    return value && value->is_null();
}

std::int64_t whole(const Config& config, std::initializer_list<std::string_view> keys, std::int64_t absent,
                   std::int64_t least) {
    refuse_null(config, keys);
    return config.size(keys, absent, least);
}

std::int64_t whole_count(const Config& config, std::initializer_list<std::string_view> keys,
                         std::int64_t absent) {
    refuse_null(config, keys);
    return config.count(keys, absent);
}

std::optional<std::int64_t> nullable_size(const Config& config, std::string_view key, std::int64_t absent) {
    return is_null(config, key) ? std::nullopt : std::optional(config.size(key, absent));
}

std::int64_t size_or(const Config& config, std::string_view key, std::int64_t fallback) {
    const std::optional<json::Value> given = config.value().find(key);
    return given && given->is_integer() && given->integer() == 0
               ? fallback
               : config.optional_size(key).value_or(fallback);
}

bool nullable_flag(const Config& config, std::string_view key, bool absent) {
    return !is_null(config, key) && config.flag(key, absent);
}

std::vector<std::string> layer_types(const Config& config, std::int64_t layers) {
    if (!config.has("layer_types")) {
        return {};
    }
    std::vector<std::string> types = config.strings("layer_types");
    for (std::string& type : types) {
        type = present_name(type);
        if (std::ranges::find(known_layer_types, type) == known_layer_types.end()) {
            const std::vector<std::string> known(known_layer_types.begin(), known_layer_types.end());
            config.refuse("layer_types",
                          "unknown layer type " + json::quote(type) + did_you_mean(type, known));
        }
    }
    if (types.size() != static_cast<std::size_t>(layers)) {
        config.refuse("layer_types", "expected one entry for each of the " + std::to_string(layers) +
                                         " layers (num_hidden_layers), found " +
                                         std::to_string(types.size()));
    }
    return types;
}

void refuse_per_layer_settings(const Config& config) {
    if (config.has("per_layer_config")) {
        config.refuse("per_layer_config",
                      "settings that differ from layer to layer are not built in; "
                      "export the model as a module-tree JSON (docs/formats.md)");
    }
}

void check_layers(const Config& config, std::int64_t layers) {
    refuse_per_layer_settings(config);
    layer_types(config, layers);
}

void check_padding(const Config& config, std::optional<std::int64_t> absent, std::int64_t rows,
                   std::string_view rows_key) {
    std::optional<std::int64_t> padding = absent;
    if (const std::optional<json::Value> given = config.value().find("pad_token_id")) {
        padding = given->is_null() ? std::nullopt : std::optional(given->integer());
    }
    if (padding && (*padding >= rows || *padding < -rows)) {
        config.refuse("pad_token_id", "the embedding has no row " + std::to_string(*padding) +
                                          " for padding: " + std::string(rows_key) + " is " +
                                          std::to_string(rows));
    }
}

}  // namespace fsdplan
