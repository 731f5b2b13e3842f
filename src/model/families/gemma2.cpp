#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.gemma2.modeling_gemma2", "Gemma2PreTrainedModel"},
                                  "Gemma2"};

constexpr DecoderDefaults defaults{
    .vocab_size = 256000,
    .hidden_size = 2304,
    .intermediate_size = 9216,
    .num_hidden_layers = 26,
    .num_attention_heads = 8,
    .num_key_value_heads = 4,
    .head_dim = 256,
    .head_dim_when_absent = HeadDim::given,
    .pad_token_id = 0,
    .act_key = "hidden_activation",
    .act = "gelu_pytorch_tanh",
    .tie_word_embeddings = true,
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    config.require_divides(s.heads, "num_attention_heads", s.hidden, "hidden_size");
    const bool bias = config.flag("attention_bias", false);
    DecoderParts parts;
    parts.attention = [=](Scope attention) { attention_projections(attention, s, bias, bias); };
    parts.layer_norms = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                         "post_feedforward_layernorm"};
    parts.embedding = [=](Scope model) { return scaled_embedding(model, classes, s); };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"Gemma2ForCausalLM", HeadKind::causal_lm},
    Head{"Gemma2ForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"Gemma2ForTokenClassification", HeadKind::generic_token_classifier},
};
constexpr DecoderFamily decoder_family{classes.space, "Gemma2Model", heads, describe};
DecoderForward layers(const Config& config) {
    DecoderForward out = decoder_forward_of(decoder_sizes(config, defaults));
    out.norm_adds_one = true;
    out.scaled_embedding = true;
    out.capped_scores = true;
    out.capped_logits = !is_null(config, "final_logit_softcapping");
    return out;
}
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"gemma2"};
constexpr std::array<std::string_view, 1> no_split{"Gemma2DecoderLayer"};

}  // namespace

extern const FamilyInfo gemma2;
constinit const FamilyInfo gemma2{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
    .forward = decoder_lm_forward<decoder_family, layers>,
    .ties_by_default = defaults.tie_word_embeddings,
};

}  // namespace fsdplan::builtin::family
