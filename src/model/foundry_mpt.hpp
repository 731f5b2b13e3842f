#pragma once

#include "model/family.hpp"

// MosaicML's own MPT (llm-foundry), which checkpoints name "MPTForCausalLM" and bring as remote code. It is
// not transformers' MptForCausalLM: positions are learned, layers have biases, norms are LayerNorm in low
// precision, and the loss is computed outside of the model.
namespace fsdplan {

constexpr std::string_view foundry_mpt_class = "MPTForCausalLM";

/// Throws Error(input) for settings that make another model of it (rotary embeddings, norms of heads, …).
void build_foundry_mpt(const Config& config, const Place& place);

/// Flash attention over unpadded tokens, and flash-attn's cross entropy: the defaults of llm-foundry. Empty
/// for another class.
Value foundry_mpt_forward(const Config& config, Eager& f, ModuleIndex top);

}  // namespace fsdplan
