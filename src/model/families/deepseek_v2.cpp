#include "model/latent_attention.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr PrefixedClasses classes{
    {"transformers.models.deepseek_v2.modeling_deepseek_v2", "DeepseekV2PreTrainedModel"}, "DeepseekV2"};

constexpr DecoderDefaults defaults{
    .vocab_size = 102400,
    .hidden_size = 4096,
    .intermediate_size = 11008,
    .num_hidden_layers = 32,
    .num_attention_heads = 32,
    .head_dim = 64,
    .head_dim_key = "qk_rope_head_dim",
    .head_dim_when_absent = HeadDim::given,
};

Backbone describe(const Config& config) {
    const DecoderSizes s = decoder_sizes(config, defaults);
    config.require_divides(s.heads, "num_attention_heads", s.hidden, "hidden_size");
    const LatentAttention latent = latent_attention(config, s);
    const bool mlp_bias = config.flag("mlp_bias", false);
    const std::int64_t experts = whole_count(config, {"num_experts", "n_routed_experts"}, 64);
    const std::int64_t expert_width = whole(config, {"moe_intermediate_size"}, 1407);
    const std::int64_t shared_experts = whole_count(config, {"n_shared_experts"}, 2);
    const std::int64_t shared_width = checked_mul(expert_width, shared_experts, config.value().where());
    const std::int64_t dense_layers = whole_count(config, {"first_k_dense_replace"}, 0);
    DecoderParts parts;
    parts.attention = [=](Scope attention) { latent_projections(attention, classes, s, latent); };
    parts.feed_forward = [=](Scope layer, std::int64_t i) {
        if (i < dense_layers) {
            gated_mlp(layer, "mlp", classes, s, s.intermediate, mlp_bias);
            return;
        }
        const Scope moe = layer.child("mlp", classes.plain("Moe"));
        fused_experts(moe, classes, s, experts, expert_width);
        router(moe, "gate", classes.plain("TopkRouter"), s, experts, DType::float32);
        gated_mlp(moe, "shared_experts", classes, s, shared_width, mlp_bias);
    };
    return decoder(classes, s, parts);
}

constexpr std::array heads{
    Head{"DeepseekV2ForCausalLM", HeadKind::causal_lm},
    Head{"DeepseekV2ForSequenceClassification", HeadKind::generic_sequence_classifier},
};
constexpr DecoderFamily decoder_family{classes.space, "DeepseekV2Model", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"deepseek_v2"};
constexpr std::array<std::string_view, 1> no_split{"DeepseekV2DecoderLayer"};

}  // namespace

extern const FamilyInfo deepseek_v2;
constinit const FamilyInfo deepseek_v2{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
