#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/family.hpp"

// Parts of models that put the states of a vision tower into a language model: llava, gemma3.
namespace fsdplan {

/// Builds the backbone of a nested configuration as a child; `absent` is its model_type when it names none.
Scope nested_model(Scope parent, const std::string& name, const Config& nested, std::string_view absent);

/// The width of a language model's embed_tokens; throws Error(input) at `nested` when it has none.
std::int64_t token_width(Scope language_model, const Config& nested);

/// The width of a vision tower's patch embedding; throws Error(input) at `config` when it has none.
std::int64_t patch_width(Scope tower, const Config& config);

/// The child "lm_head" of `root`, without a bias, tied to the language model's embedding or not.
void output_layer(Scope root, Scope language_model, bool tied);

}  // namespace fsdplan
