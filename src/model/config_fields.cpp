#include "model/config_fields.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace fsdplan {
namespace {

// transformers' ALLOWED_ATTN_LAYER_TYPES, and the old names that it translates.
constexpr std::array<std::string_view, 18> known_layer_types{
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
    "mamba",
    "attention",
    "deepseek_sparse_attention",
    "qwen_sparse_attention",
};

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

void check_layers(const Config& config, std::int64_t layers) {
    if (config.has("per_layer_config")) {
        config.refuse("per_layer_config",
                      "settings that differ from layer to layer are not built in; "
                      "export the model as a module-tree JSON (docs/formats.md)");
    }
    if (!config.has("layer_types")) {
        return;
    }
    const std::vector<std::string> types = config.strings("layer_types");
    for (const std::string& type : types) {
        if (std::ranges::find(known_layer_types, type) == known_layer_types.end()) {
            config.refuse("layer_types",
                          "unknown layer type " + json::quote(type) +
                              did_you_mean(type, std::vector<std::string>(known_layer_types.begin(),
                                                                          known_layer_types.end())));
        }
    }
    if (types.size() != static_cast<std::size_t>(layers)) {
        config.refuse("layer_types", "expected one entry for each of the " + std::to_string(layers) +
                                         " layers (num_hidden_layers), found " +
                                         std::to_string(types.size()));
    }
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
