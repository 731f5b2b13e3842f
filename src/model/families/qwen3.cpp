#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.qwen3.modeling_qwen3", "Qwen3PreTrainedModel"},
                                  "Qwen3"};

constexpr DecoderDefaults defaults{
    .vocab_size = 151936,
    .hidden_size = 4096,
    .intermediate_size = 22016,
    .num_hidden_layers = 32,
    .num_attention_heads = 32,
    .num_key_value_heads = 32,
    .kv_heads_may_be_null = true,
    .head_dim = 128,
    .head_dim_when_absent = HeadDim::given,
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    const bool bias = config.flag("attention_bias", false);
    DecoderParts parts;
    parts.attention = [=](Scope attention) {
        attention_projections(attention, s, bias, bias);
        query_key_norms(attention, classes, s.head_dim, s.head_dim);
    };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"Qwen3ForCausalLM", HeadKind::causal_lm},
    Head{"Qwen3ForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"Qwen3ForTokenClassification", HeadKind::generic_token_classifier},
    Head{"Qwen3ForQuestionAnswering", HeadKind::generic_question_answering, "transformer"},
};
constexpr DecoderFamily decoder_family{classes.space, "Qwen3Model", heads, describe};
DecoderForward layers(const Config& config) {
    return decoder_forward_of(decoder_sizes(config, defaults));
}
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"qwen3"};
constexpr std::array<std::string_view, 1> no_split{"Qwen3DecoderLayer"};

}  // namespace

extern const FamilyInfo qwen3;
constinit const FamilyInfo qwen3{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
    .forward = decoder_lm_forward<decoder_family, layers>,
};

}  // namespace fsdplan::builtin::family
