#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.llama.modeling_llama", "LlamaPreTrainedModel"},
                                  "Llama"};

constexpr DecoderDefaults defaults{
    .vocab_size = 32000,
    .hidden_size = 4096,
    .intermediate_size = 11008,
    .num_hidden_layers = 32,
    .num_attention_heads = 32,
    .head_dim_may_be_null = true,
    .head_dim_when_absent = HeadDim::given,
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    config.require_divides(s.heads, "num_attention_heads", s.hidden, "hidden_size");
    const bool attention_bias = config.flag("attention_bias", false);
    const bool mlp_bias = config.flag("mlp_bias", false);
    DecoderParts parts;
    parts.attention = [=](Scope attention) {
        attention_projections(attention, s, attention_bias, attention_bias);
    };
    parts.feed_forward = [=](Scope layer, std::int64_t) {
        gated_mlp(layer, "mlp", classes, s, s.intermediate, mlp_bias);
    };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"LlamaForCausalLM", HeadKind::causal_lm},
    Head{"LlamaForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"LlamaForTokenClassification", HeadKind::generic_token_classifier},
    Head{"LlamaForQuestionAnswering", HeadKind::generic_question_answering, "transformer"},
};
constexpr DecoderFamily decoder_family{classes.space, "LlamaModel", heads, describe};
DecoderForward layers(const Config& config) {
    return decoder_forward_of(decoder_sizes(config, defaults));
}
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"llama"};
constexpr std::array<std::string_view, 1> no_split{"LlamaDecoderLayer"};

}  // namespace

extern const FamilyInfo llama;
constinit const FamilyInfo llama{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
    .forward = decoder_lm_forward<decoder_family, layers>,
};

}  // namespace fsdplan::builtin::family
