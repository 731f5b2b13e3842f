#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr DecoderClasses classes{{"transformers.models.phi3.modeling_phi3", "Phi3PreTrainedModel"}, "Phi3"};

constexpr DecoderDefaults defaults{
    .vocab_size = 32064,
    .hidden_size = 3072,
    .intermediate_size = 8192,
    .num_hidden_layers = 32,
    .num_attention_heads = 32,
    .pad_token_id = 32000,
    .rope = {.partial_by_default = true, .only_longrope = true},
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    DecoderParts parts;
    parts.attention = [=](Scope attention) {
        linear(attention, "o_proj", s.q_width, s.hidden, false);
        linear(attention, "qkv_proj", s.hidden, s.q_width + 2 * s.kv_width, false);
    };
    parts.feed_forward = [=](Scope layer, std::int64_t) {
        const Scope mlp = layer.child("mlp", classes.plain("MLP"));
        linear(mlp, "gate_up_proj", s.hidden, 2 * s.intermediate, false);
        linear(mlp, "down_proj", s.intermediate, s.hidden, false);
        activation(mlp, "activation_fn", s.act);
    };
    parts.layer_dropouts = {"resid_attn_dropout", "resid_mlp_dropout"};
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"Phi3ForCausalLM", HeadKind::causal_lm},
    Head{"Phi3ForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"Phi3ForTokenClassification", HeadKind::generic_token_classifier},
};
constexpr DecoderFamily decoder_family{classes.space, "Phi3Model", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"phi3"};
constexpr std::array<std::string_view, 1> no_split{"Phi3DecoderLayer"};

}  // namespace

extern const FamilyInfo phi3;
constinit const FamilyInfo phi3{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
