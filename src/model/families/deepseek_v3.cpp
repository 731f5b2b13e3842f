#include "model/latent_attention.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{
    {"transformers.models.deepseek_v3.modeling_deepseek_v3", "DeepseekV3PreTrainedModel"}, "DeepseekV3"};

constexpr DecoderDefaults defaults{
    .vocab_size = 129280,
    .hidden_size = 7168,
    .intermediate_size = 18432,
    .num_hidden_layers = 61,
    .num_attention_heads = 128,
    .num_key_value_heads = 128,
    .kv_heads_may_be_null = true,
    .head_dim = 64,
    .head_dim_key = "qk_rope_head_dim",
    .rope = std::nullopt,
};

Backbone describe(const Config& config) {
    DecoderSizes sizes = decoder_sizes(config, defaults);
    // head_dim is no field of this class, but what a file says replaces qk_rope_head_dim here.
    const std::int64_t rotated = config.optional_size("head_dim").value_or(sizes.head_dim);
    sizes.rotary_width = rotary_width(config, rope_of(config), {}, rotated, HeadDim::given);
    const DecoderSizes s = sizes;
    const LatentAttention latent = latent_attention(config, s);
    const std::int64_t experts = whole_count(config, {"num_local_experts", "n_routed_experts"}, 256);
    const std::int64_t expert_width = whole(config, {"moe_intermediate_size"}, 2048);
    const std::int64_t shared_experts = whole_count(config, {"n_shared_experts"}, 1);
    const std::int64_t shared_width = checked_mul(expert_width, shared_experts, config.value().where());
    const std::int64_t dense_layers = whole_count(config, {"first_k_dense_replace"}, 3);
    DecoderParts parts;
    parts.attention = [=](Scope attention) { latent_projections(attention, classes, s, latent); };
    parts.feed_forward = [=](Scope layer, std::int64_t i) {
        if (i < dense_layers) {
            gated_mlp(layer, "mlp", classes, s, s.intermediate);
            return;
        }
        const Scope moe = layer.child("mlp", classes.plain("MoE"));
        fused_experts(moe, classes, s, experts, expert_width);
        const Scope gate = router(moe, "gate", classes.plain("TopkRouter"), s, experts, DType::float32);
        gate.buffer("e_score_correction_bias", {experts}, DType::float32);
        gated_mlp(moe, "shared_experts", classes, s, shared_width);
    };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"DeepseekV3ForCausalLM", HeadKind::causal_lm},
    Head{"DeepseekV3ForSequenceClassification", HeadKind::generic_sequence_classifier},
    Head{"DeepseekV3ForTokenClassification", HeadKind::generic_token_classifier},
};
constexpr DecoderFamily decoder_family{classes.space, "DeepseekV3Model", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"deepseek_v3"};
constexpr std::array<std::string_view, 1> no_split{"DeepseekV3DecoderLayer"};

}  // namespace

extern const FamilyInfo deepseek_v3;
constinit const FamilyInfo deepseek_v3{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
