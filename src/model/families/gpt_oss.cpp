#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{{"transformers.models.gpt_oss.modeling_gpt_oss", "GptOssPreTrainedModel"},
                                  "GptOss"};

constexpr DecoderDefaults defaults{
    .vocab_size = 201088,
    .hidden_size = 2880,
    .intermediate_size = 2880,
    .num_hidden_layers = 36,
    .num_attention_heads = 64,
    .num_key_value_heads = 8,
    .head_dim = 64,
    .head_dim_when_absent = HeadDim::given,
    .rope = std::nullopt,
};

Backbone describe(const Config& config) {
    DecoderSizes sizes = decoder_sizes(config, defaults);
    Rope rope = rope_of(config);
    if (rope.objects.empty() && !config.has("rope_parameters")) {
        rope.type = "yarn";  // with parameters of its own
    }
    sizes.rotary_width = rotary_width(config, rope, {}, sizes.head_dim, HeadDim::given);
    const DecoderSizes s = sizes;
    const bool bias = config.flag("attention_bias", true);
    const std::int64_t experts = whole_count(config, {"num_experts", "num_local_experts"}, 128);
    DecoderParts parts;
    parts.attention = [=](Scope attention) {
        attention.parameter("sinks", {s.heads});
        attention_projections(attention, s, bias, bias);
    };
    // Unlike other families' the experts have biases, and their weights are transposed.
    parts.feed_forward = [=](Scope layer, std::int64_t) {
        const Scope moe = layer.child("mlp", classes.plain("MLP"));
        router(moe, "router", classes.plain("TopKRouter"), s, experts).parameter("bias", {experts});
        const Scope module = moe.child("experts", classes.plain("Experts"));
        module.parameter("gate_up_proj", {experts, s.hidden, 2 * s.intermediate});
        module.parameter("gate_up_proj_bias", {experts, 2 * s.intermediate});
        module.parameter("down_proj", {experts, s.intermediate, s.hidden});
        module.parameter("down_proj_bias", {experts, s.hidden});
    };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"GptOssForCausalLM", HeadKind::causal_lm},
    Head{"GptOssForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"GptOssForTokenClassification", HeadKind::generic_token_classifier},
};
constexpr DecoderFamily decoder_family{classes.space, "GptOssModel", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"gpt_oss"};
constexpr std::array<std::string_view, 1> no_split{"GptOssDecoderLayer"};

}  // namespace

extern const FamilyInfo gpt_oss;
constinit const FamilyInfo gpt_oss{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
