#pragma once

#include "operators/functional.hpp"

// Modules that model families share, called as PyTorch calls them: the caller holds what it passes.
namespace fsdplan::layer {

/// The child of this name; throws Error(input) when the tree has none, as after a change that nobody here
/// knows.
ModuleIndex child(const Eager& f, ModuleIndex m, std::string_view name);

/// nn.Linear, transformers' Conv1D, or peft's adapter around one.
Value linear(Eager& f, ModuleIndex m, const Value& x);
Value embedding(Eager& f, ModuleIndex m, const Value& ids);
/// A model's get_input_embeddings(); `scaled`: it multiplies with a constant.
Value input_embedding(Eager& f, ModuleIndex m, const Value& ids, bool scaled = false);
/// nn.LayerNorm.
Value norm(Eager& f, ModuleIndex m, const Value& x);
/// Root mean square in float32, then times the weight (Llama and its kin).
Value rms_norm(Eager& f, ModuleIndex m, const Value& x);
/// The same, but times one plus the weight, before the result is rounded (Gemma).
Value rms_norm_plus_one(Eager& f, ModuleIndex m, const Value& x);
Value dropout(Eager& f, ModuleIndex m, const Value& x, double p);
/// A module that is an activation function; `name` as in a configuration ("silu", "gelu_new").
Value activation(Eager& f, ModuleIndex m, const Value& x, std::string_view name);
/// The function itself.
Value activate(Eager& f, const Value& x, std::string_view name);

}  // namespace fsdplan::layer
