#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.mistral.modeling_mistral", "MistralPreTrainedModel"},
                                  "Mistral"};

constexpr DecoderDefaults defaults{
    .vocab_size = 32000,
    .hidden_size = 4096,
    .intermediate_size = 14336,
    .num_hidden_layers = 32,
    .num_attention_heads = 32,
    .num_key_value_heads = 8,
    .head_dim_may_be_null = true,
    .head_dim_when_absent = HeadDim::given,
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    DecoderParts parts;
    parts.attention = [=](Scope attention) { attention_projections(attention, s, false, false); };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"MistralForCausalLM", HeadKind::causal_lm},
    Head{"MistralForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"MistralForTokenClassification", HeadKind::generic_token_classifier},
    Head{"MistralForQuestionAnswering", HeadKind::generic_question_answering},
};
constexpr DecoderFamily decoder_family{classes.space, "MistralModel", heads, describe};
DecoderForward layers(const Config& config) {
    DecoderForward out = decoder_forward_of(decoder_sizes(config, defaults));
    out.window = config.optional_size("sliding_window");
    return out;
}
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"mistral"};
constexpr std::array<std::string_view, 1> no_split{"MistralDecoderLayer"};

}  // namespace

extern const FamilyInfo mistral;
constinit const FamilyInfo mistral{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
    .forward = decoder_lm_forward<decoder_family, layers>,
};

}  // namespace fsdplan::builtin::family
