#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.qwen2.modeling_qwen2", "Qwen2PreTrainedModel"},
                                  "Qwen2"};

constexpr DecoderDefaults defaults{
    .vocab_size = 151936,
    .hidden_size = 4096,
    .intermediate_size = 22016,
    .num_hidden_layers = 32,
    .num_attention_heads = 32,
    .num_key_value_heads = 32,
    .kv_heads_may_be_null = true,
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    DecoderParts parts;
    parts.attention = [=](Scope attention) { attention_projections(attention, s, true, false); };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"Qwen2ForCausalLM", HeadKind::causal_lm},
    Head{"Qwen2ForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"Qwen2ForTokenClassification", HeadKind::generic_token_classifier},
    Head{"Qwen2ForQuestionAnswering", HeadKind::generic_question_answering, "transformer"},
};
constexpr DecoderFamily decoder_family{classes.space, "Qwen2Model", heads, describe};
DecoderForward layers(const Config& config) {
    return decoder_forward_of(decoder_sizes(config, defaults));
}
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"qwen2"};
constexpr std::array<std::string_view, 1> no_split{"Qwen2DecoderLayer"};

}  // namespace

extern const FamilyInfo qwen2;
constinit const FamilyInfo qwen2{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
    .forward = decoder_lm_forward<decoder_family, layers>,
};

}  // namespace fsdplan::builtin::family
