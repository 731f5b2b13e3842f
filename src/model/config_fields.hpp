#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.hpp"

// How transformers' configuration classes read their typed fields, where null and absence differ.
namespace fsdplan {

/// A size that may be absent but not null. Of several spellings the first that is there counts.
std::int64_t whole(const Config& config, std::initializer_list<std::string_view> keys, std::int64_t absent,
                   std::int64_t least = 1);
/// The same for a number of layers or experts, from 0.
std::int64_t whole_count(const Config& config, std::initializer_list<std::string_view> keys,
                         std::int64_t absent);
/// A size that null switches off.
std::optional<std::int64_t> nullable_size(const Config& config, std::string_view key, std::int64_t absent);
/// A size for which 0 and null mean `fallback`, as Python's `or` has it.
std::int64_t size_or(const Config& config, std::string_view key, std::int64_t fallback);
/// A flag for which null means false.
bool nullable_flag(const Config& config, std::string_view key, bool absent);
/// True when the key is there and null.
bool is_null(const Config& config, std::string_view key);

/// "layer_types" under their present names, one for each layer; empty when absent.
std::vector<std::string> layer_types(const Config& config, std::int64_t layers);
/// Refuses settings that differ from layer to layer (per_layer_config): no family builds them.
void refuse_per_layer_settings(const Config& config);
/// Refuses layer_types that transformers refuses, and settings that differ from layer to layer.
void check_layers(const Config& config, std::int64_t layers);
/// Refuses a pad_token_id that an embedding has no row for; `absent` is the class's default, and `rows_key`
/// the key that gave the rows.
void check_padding(const Config& config, std::optional<std::int64_t> absent, std::int64_t rows,
                   std::string_view rows_key = "vocab_size");

}  // namespace fsdplan
