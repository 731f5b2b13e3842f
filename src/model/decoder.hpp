#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/causal_lm.hpp"
#include "model/config_fields.hpp"
#include "model/rope.hpp"
#include "operators/language_model.hpp"

// The shape that most decoder-only language models have since llama: a token embedding, layers of
// self-attention and feed-forward with norms around them, a last norm and one rotary embedding.
namespace fsdplan {

/// Defaults of a family's configuration class.
struct DecoderDefaults {
    std::int64_t vocab_size = 0;
    std::int64_t hidden_size = 0;
    std::int64_t intermediate_size = 0;
    std::int64_t num_hidden_layers = 0;
    std::int64_t num_attention_heads = 0;
    std::int64_t num_key_value_heads = 0;  ///< 0: as many as num_attention_heads
    bool kv_heads_may_be_null = false;     ///< null then means as many as num_attention_heads
    std::int64_t head_dim = 0;             ///< 0: hidden_size / num_attention_heads
    std::string_view head_dim_key = "head_dim";
    bool head_dim_may_be_null = false;
    HeadDim head_dim_when_absent = HeadDim::absent;  ///< what the configuration object has then
    std::optional<std::int64_t> pad_token_id = {};
    std::string_view act_key = "hidden_act";
    std::string_view act = "silu";
    bool tie_word_embeddings = false;
    std::optional<RopeRules> rope = RopeRules{};  ///< nothing: the family works out rotary_width itself
};

/// The sizes of one configuration.
struct DecoderSizes {
    std::int64_t vocab = 0;
    std::int64_t hidden = 0;
    std::int64_t intermediate = 0;
    std::int64_t layers = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t q_width = 0;   ///< heads * head_dim
    std::int64_t kv_width = 0;  ///< kv_heads * head_dim
    std::int64_t rotary_width = 0;
    std::string act;
    bool tied = false;
};

DecoderSizes decoder_sizes(const Config& config, const DecoderDefaults& defaults);

/// Parts of a decoder; what is left empty is as in llama.
struct DecoderParts {
    std::function<void(Scope attention)> attention = {};
    /// Adds the feed-forward module "mlp" to a layer: dense or sparse.
    std::function<void(Scope layer, std::int64_t index)> feed_forward = {};
    std::vector<std::string_view> layer_norms = {"input_layernorm", "post_attention_layernorm"};
    std::vector<std::string_view> layer_dropouts = {};
    bool torch_norms = false;  ///< torch's LayerNorm instead of the family's RMS norm
    std::function<Scope(Scope model)> embedding = {};
    /// What follows the layers: "norm" and "rotary_emb".
    std::function<void(Scope model)> tail = {};
};

/// What the layers compute, where nothing differs from llama.
DecoderForward decoder_forward_of(const DecoderSizes& sizes);

/// A family's FamilyInfo::forward from a function that says what its layers compute.
template <const DecoderFamily& family, DecoderForward (*layers)(const Config&)>
Value decoder_lm_forward(const Config& config, Eager& f, ModuleIndex top) {
    if (!is_causal_lm(family, f.tree(), top)) {
        return {};
    }
    const DecoderForward forward = layers(config);
    const auto body = [&](ModuleIndex model, const Value& ids) {
        return decoder_forward(f, model, ids, forward);
    };
    return causal_lm(f, top, "model", "lm_head", body, forward.capped_logits);
}

/// A backbone of the common shape.
Backbone decoder(const PrefixedClasses& classes, const DecoderSizes& sizes, const DecoderParts& parts);

// Parts. Each adds to the given module in the order in which transformers does.

/// q_proj, k_proj, v_proj and the output projection.
void attention_projections(Scope attention, const DecoderSizes& sizes, bool qkv_bias, bool out_bias,
                           std::string out_name = "o_proj");
/// "q_norm" and "k_norm" with one weight of these widths.
void query_key_norms(Scope attention, const PrefixedClasses& classes, std::int64_t q_width,
                     std::int64_t k_width);
/// gate_proj, up_proj, down_proj and act_fn in a new child "<prefix>MLP" of this name.
void gated_mlp(Scope parent, std::string name, const PrefixedClasses& classes, const DecoderSizes& sizes,
               std::int64_t intermediate, bool bias = false);
/// "experts" with the weights of all experts in two tensors.
void fused_experts(Scope moe, const PrefixedClasses& classes, const DecoderSizes& sizes, std::int64_t experts,
                   std::int64_t intermediate);
/// A router with one weight, a row for each expert.
Scope router(Scope moe, std::string name, const ModuleClass& router_class, const DecoderSizes& sizes,
             std::int64_t experts, std::optional<DType> dtype = {});
/// An embedding that multiplies by a constant, which it keeps as a buffer.
Scope scaled_embedding(Scope model, const PrefixedClasses& classes, const DecoderSizes& sizes);

/// The layers of a model with sparse and dense feed-forward modules that are sparse.
struct SparseLayers {
    std::vector<std::int64_t> dense = {};  ///< mlp_only_layers
    std::int64_t step = 1;                 ///< decoder_sparse_step: every so many layers

    bool contains(std::int64_t layer) const;
};
SparseLayers sparse_layers(const Config& config);

}  // namespace fsdplan
