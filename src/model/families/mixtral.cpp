#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.mixtral.modeling_mixtral", "MixtralPreTrainedModel"},
                                  "Mixtral"};

constexpr DecoderDefaults defaults{
    .vocab_size = 32000,
    .hidden_size = 4096,
    .intermediate_size = 14336,
    .num_hidden_layers = 32,
    .num_attention_heads = 32,
    .num_key_value_heads = 8,
    .head_dim_may_be_null = true,
    .head_dim_when_absent = HeadDim::null,
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    const std::int64_t experts = whole_count(config, {"num_experts", "num_local_experts"}, 8);
    DecoderParts parts;
    parts.attention = [=](Scope attention) { attention_projections(attention, s, false, false); };
    parts.feed_forward = [=](Scope layer, std::int64_t) {
        const Scope moe = layer.child("mlp", classes.plain("SparseMoeBlock"));
        router(moe, "gate", classes.plain("TopKRouter"), s, experts);
        fused_experts(moe, classes, s, experts, s.intermediate);
    };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"MixtralForCausalLM", HeadKind::causal_lm},
    Head{"MixtralForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"MixtralForTokenClassification", HeadKind::generic_token_classifier},
    Head{"MixtralForQuestionAnswering", HeadKind::generic_question_answering},
};
constexpr DecoderFamily decoder_family{classes.space, "MixtralModel", heads, describe};
DecoderForward layers(const Config& config) {
    DecoderForward out = decoder_forward_of(decoder_sizes(config, defaults));
    out.experts_per_token = whole(config, {"num_experts_per_tok"}, 2);
    return out;
}
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"mixtral"};
constexpr std::array<std::string_view, 1> no_split{"MixtralDecoderLayer"};

}  // namespace

extern const FamilyInfo mixtral;
constinit const FamilyInfo mixtral{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
    .forward = decoder_lm_forward<decoder_family, layers>,
};

}  // namespace fsdplan::builtin::family
