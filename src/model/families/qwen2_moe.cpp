#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{
    {"transformers.models.qwen2_moe.modeling_qwen2_moe", "Qwen2MoePreTrainedModel"}, "Qwen2Moe"};

constexpr DecoderDefaults defaults{
    .vocab_size = 151936,
    .hidden_size = 2048,
    .intermediate_size = 5632,
    .num_hidden_layers = 24,
    .num_attention_heads = 16,
    .num_key_value_heads = 16,
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    const SparseLayers sparse = sparse_layers(config);
    const bool qkv_bias = config.flag("qkv_bias", true);
    const std::int64_t experts = whole_count(config, {"num_experts"}, 60);
    const std::int64_t expert_width = whole(config, {"moe_intermediate_size"}, 1408);
    const std::int64_t shared_width = whole(config, {"shared_expert_intermediate_size"}, 5632);
    DecoderParts parts;
    parts.attention = [=](Scope attention) { attention_projections(attention, s, qkv_bias, false); };
    parts.feed_forward = [=](Scope layer, std::int64_t i) {
        if (experts == 0 || !sparse.contains(i)) {
            gated_mlp(layer, "mlp", classes, s, s.intermediate);
            return;
        }
        const Scope moe = layer.child("mlp", classes.plain("SparseMoeBlock"));
        router(moe, "gate", classes.plain("TopKRouter"), s, experts);
        fused_experts(moe, classes, s, experts, expert_width);
        gated_mlp(moe, "shared_expert", classes, s, shared_width);
        linear(moe, "shared_expert_gate", s.hidden, 1, false);
    };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"Qwen2MoeForCausalLM", HeadKind::causal_lm},
    Head{"Qwen2MoeForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"Qwen2MoeForTokenClassification", HeadKind::generic_token_classifier},
    Head{"Qwen2MoeForQuestionAnswering", HeadKind::generic_question_answering},
};
constexpr DecoderFamily decoder_family{classes.space, "Qwen2MoeModel", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"qwen2_moe"};
constexpr std::array<std::string_view, 1> no_split{"Qwen2MoeDecoderLayer"};

}  // namespace

extern const FamilyInfo qwen2_moe;
constinit const FamilyInfo qwen2_moe{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
