#pragma once

#include <functional>

#include "operators/attention.hpp"
#include "operators/layers.hpp"

// Language models of transformers, around their layers.
namespace fsdplan {

/// The token ids of the workload.
Value token_ids(Eager& f);

/// Positions from 0, [1, sequence].
Value position_ids(Eager& f);

/// ForCausalLMLoss: float32 logits, labels moved by one.
Value causal_lm_loss(Eager& f, const Value& logits);
/// The same before transformers 4.46: of float32 logits that the model returns, all but the last copied.
Value shifted_causal_lm_loss(Eager& f, const Value& logits);
/// Cross entropy of [batch, sequence, classes] in the logits' dtype, as masked models and T5 use it.
Value token_loss(Eager& f, const Value& logits);

/// Cross entropy of [batch, classes] in the logits' dtype.
Value class_loss(Eager& f, const Value& logits);

/// A model with a language head and its loss. `body` plays the backbone with this child name.
Value causal_lm(Eager& f, ModuleIndex top, std::string_view backbone, std::string_view head,
                const std::function<Value(ModuleIndex backbone, const Value& ids)>& body,
                bool capped_logits = false);

/// The layers of a decoder as most models since Llama have it.
struct DecoderForward {
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t rotary_width = 0;
    std::string act;
    bool norm_adds_one = false;               ///< RMS norms multiply with one plus the weight
    bool scaled_embedding = false;            ///< the embedding multiplies with a constant
    bool capped_scores = false;               ///< tanh bounds those of attention, which is eager then
    bool capped_logits = false;               ///< tanh bounds them
    std::int64_t experts_per_token = 0;       ///< of layers whose mlp has experts
    std::optional<std::int64_t> window = {};  ///< positions that attention looks back; absent: all
};
/// embed_tokens, rotary_emb, layers and norm.
Value decoder_forward(Eager& f, ModuleIndex model, const Value& ids, const DecoderForward& sizes);

}  // namespace fsdplan
