#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.phi.modeling_phi", "PhiPreTrainedModel"}, "Phi"};

constexpr DecoderDefaults defaults{
    .vocab_size = 51200,
    .hidden_size = 2048,
    .intermediate_size = 8192,
    .num_hidden_layers = 24,
    .num_attention_heads = 32,
    .act = "gelu_new",
    .rope = RopeRules{.partial_by_default = true, .partial = 0.5},
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    const bool qk_norm = config.flag("qk_layernorm", false);
    DecoderParts parts;
    parts.attention = [=](Scope attention) {
        attention_projections(attention, s, true, true, "dense");
        if (qk_norm) {
            layer_norm(attention, "q_layernorm", s.hidden / s.heads);
            layer_norm(attention, "k_layernorm", s.hidden / s.heads);
        }
    };
    parts.feed_forward = [=](Scope layer, std::int64_t) {
        const Scope mlp = layer.child("mlp", classes.plain("MLP"));
        activation(mlp, "activation_fn", s.act);
        linear(mlp, "fc1", s.hidden, s.intermediate, true);
        linear(mlp, "fc2", s.intermediate, s.hidden, true);
    };
    parts.layer_norms = {"input_layernorm"};
    parts.layer_dropouts = {"resid_dropout"};
    parts.torch_norms = true;
    parts.tail = [=](Scope model) {
        rotary_embedding(model, "rotary_emb", classes.plain("RotaryEmbedding"), s.rotary_width);
        dropout(model, "embed_dropout");
        layer_norm(model, "final_layernorm", s.hidden);
    };
    Backbone out = decoder(classes, s, parts);
    out.head_bias = true;
    return out;
}

constexpr std::array heads{
    Head{"PhiForCausalLM", HeadKind::causal_lm},
    Head{"PhiForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"PhiForTokenClassification", HeadKind::generic_token_classifier},
};
constexpr DecoderFamily decoder_family{classes.space, "PhiModel", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"phi"};
constexpr std::array<std::string_view, 1> no_split{"PhiDecoderLayer"};

}  // namespace

extern const FamilyInfo phi;
constinit const FamilyInfo phi{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
