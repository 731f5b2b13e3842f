#include "model/latent_attention.hpp"

namespace fsdplan {

// The two versions of DeepSeek have the same defaults here.
LatentAttention latent_attention(const Config& config, const DecoderSizes& s) {
    const std::string where = config.value().where();
    const std::int64_t rope_dim = whole(config, {"qk_rope_head_dim"}, 64);
    const std::int64_t nope_dim = whole(config, {"qk_nope_head_dim"}, 128);
    const std::int64_t value_dim = whole(config, {"v_head_dim"}, 128);
    return {
        .q_rank = nullable_size(config, "q_lora_rank", 1536),
        .kv_rank = whole(config, {"kv_lora_rank"}, 512),
        .rope_dim = rope_dim,
        .q_width = checked_mul(s.heads, nope_dim + rope_dim, where),
        .kv_width = checked_mul(s.heads, nope_dim + value_dim, where),
        .out_width = checked_mul(s.heads, value_dim, where),
        .bias = config.flag("attention_bias", false),
    };
}

void latent_projections(Scope attention, const PrefixedClasses& classes, const DecoderSizes& s,
                        const LatentAttention& latent) {
    const ModuleClass norm = classes.plain("RMSNorm");
    if (latent.q_rank) {
        linear(attention, "q_a_proj", s.hidden, *latent.q_rank, latent.bias);
        weight_norm(attention, "q_a_layernorm", norm, *latent.q_rank);
        linear(attention, "q_b_proj", *latent.q_rank, latent.q_width, false);
    } else {
        linear(attention, "q_proj", s.hidden, latent.q_width, false);
    }
    linear(attention, "kv_a_proj_with_mqa", s.hidden, latent.kv_rank + latent.rope_dim, latent.bias);
    weight_norm(attention, "kv_a_layernorm", norm, latent.kv_rank);
    linear(attention, "kv_b_proj", latent.kv_rank, latent.kv_width, false);
    linear(attention, "o_proj", latent.out_width, s.hidden, latent.bias);
}

}  // namespace fsdplan
