#include "model/decoder.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{
    {"transformers.models.qwen3_moe.modeling_qwen3_moe", "Qwen3MoePreTrainedModel"}, "Qwen3Moe"};

constexpr DecoderDefaults defaults{
    .vocab_size = 151936,
    .hidden_size = 2048,
    .intermediate_size = 6144,
    .num_hidden_layers = 24,
    .num_attention_heads = 32,
    .num_key_value_heads = 4,
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    const SparseLayers sparse = sparse_layers(config);
    const bool bias = config.flag("attention_bias", false);
    const std::int64_t experts = whole_count(config, {"num_local_experts", "num_experts"}, 128);
    const std::int64_t expert_width = whole(config, {"moe_intermediate_size"}, 768);
    DecoderParts parts;
    parts.attention = [=](Scope attention) {
        attention_projections(attention, s, bias, bias);
        query_key_norms(attention, classes, s.head_dim, s.head_dim);
    };
    parts.feed_forward = [=](Scope layer, std::int64_t i) {
        if (experts == 0 || !sparse.contains(i)) {
            gated_mlp(layer, "mlp", classes, s, s.intermediate);
            return;
        }
        const Scope moe = layer.child("mlp", classes.plain("SparseMoeBlock"));
        fused_experts(moe, classes, s, experts, expert_width);
        router(moe, "gate", classes.plain("TopKRouter"), s, experts);
    };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"Qwen3MoeForCausalLM", HeadKind::causal_lm},
    Head{"Qwen3MoeForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"Qwen3MoeForTokenClassification", HeadKind::generic_token_classifier},
    Head{"Qwen3MoeForQuestionAnswering", HeadKind::generic_question_answering, "transformer"},
};
constexpr DecoderFamily decoder_family{classes.space, "Qwen3MoeModel", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"qwen3_moe"};
constexpr std::array<std::string_view, 1> no_split{"Qwen3MoeDecoderLayer"};

}  // namespace

extern const FamilyInfo qwen3_moe;
constinit const FamilyInfo qwen3_moe{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
