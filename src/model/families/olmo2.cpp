#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.olmo2.modeling_olmo2", "Olmo2PreTrainedModel"},
                                  "Olmo2"};

constexpr DecoderDefaults defaults{
    .vocab_size = 50304,
    .hidden_size = 4096,
    .intermediate_size = 11008,
    .num_hidden_layers = 32,
    .num_attention_heads = 32,
    .pad_token_id = 1,
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    const bool bias = config.flag("attention_bias", false);
    DecoderParts parts;
    parts.attention = [=](Scope attention) {
        attention_projections(attention, s, bias, bias);
        query_key_norms(attention, classes, s.q_width, s.kv_width);
    };
    parts.layer_norms = {"post_attention_layernorm", "post_feedforward_layernorm"};
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"Olmo2ForCausalLM", HeadKind::causal_lm},
    Head{"Olmo2ForSequenceClassification", HeadKind::generic_sequence_classifier},
};
constexpr DecoderFamily decoder_family{classes.space, "Olmo2Model", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"olmo2"};
constexpr std::array<std::string_view, 1> no_split{"Olmo2DecoderLayer"};

}  // namespace

extern const FamilyInfo olmo2;
constinit const FamilyInfo olmo2{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
