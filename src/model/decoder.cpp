#include "model/decoder.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

std::int64_t kv_heads_of(const Config& config, const DecoderDefaults& defaults, std::int64_t heads) {
    constexpr std::string_view key = "num_key_value_heads";
    if (defaults.kv_heads_may_be_null && is_null(config, key)) {
        return heads;
    }
    if (defaults.num_key_value_heads == 0) {
        return config.optional_size(key).value_or(heads);
    }
    return whole(config, {key}, defaults.num_key_value_heads);
}

std::int64_t head_dim_of(const Config& config, const DecoderDefaults& defaults, std::int64_t hidden,
                         std::int64_t heads) {
    const std::string_view key = defaults.head_dim_key;
    if (is_null(config, key) && !defaults.head_dim_may_be_null) {
        config.value().at(key).fail("an integer");
    }
    if (defaults.head_dim != 0) {
        return config.size(key, defaults.head_dim);
    }
    const std::int64_t head_dim = config.optional_size(key).value_or(hidden / heads);
    if (head_dim == 0) {
        config.refuse("num_attention_heads", std::to_string(heads) + " heads for a hidden_size of " +
                                                 std::to_string(hidden) + " leave nothing for each");
    }
    return head_dim;
}

HeadDim head_dim_attribute(const Config& config, const DecoderDefaults& defaults) {
    if (config.has(defaults.head_dim_key) || defaults.head_dim_when_absent == HeadDim::given) {
        return HeadDim::given;
    }
    return is_null(config, defaults.head_dim_key) ? HeadDim::null : defaults.head_dim_when_absent;
}

}  // namespace

DecoderSizes decoder_sizes(const Config& config, const DecoderDefaults& defaults) {
    const std::string where = config.value().where();
    DecoderSizes s;
    s.vocab = whole(config, {"vocab_size"}, defaults.vocab_size);
    s.hidden = whole(config, {"hidden_size"}, defaults.hidden_size);
    s.intermediate = whole(config, {"intermediate_size"}, defaults.intermediate_size);
    s.layers = whole_count(config, {"num_hidden_layers"}, defaults.num_hidden_layers);
    s.heads = whole(config, {"num_attention_heads"}, defaults.num_attention_heads);
    s.kv_heads = kv_heads_of(config, defaults, s.heads);
    s.head_dim = head_dim_of(config, defaults, s.hidden, s.heads);
    s.q_width = checked_mul(s.heads, s.head_dim, where);
    s.kv_width = checked_mul(s.kv_heads, s.head_dim, where);
    if (defaults.rope) {
        s.rotary_width = rotary_width(config, rope_of(config), *defaults.rope, s.head_dim,
                                      head_dim_attribute(config, defaults));
    }
    s.act = config.text(defaults.act_key, defaults.act);
    s.tied = config.flag("tie_word_embeddings", defaults.tie_word_embeddings);
    check_layers(config, s.layers);
    check_padding(config, defaults.pad_token_id, s.vocab);
    return s;
}

Backbone decoder(const PrefixedClasses& classes, const DecoderSizes& s, const DecoderParts& parts) {
    const auto build = [=](Scope model) {
        const auto norm = [&](Scope parent, std::string_view name) {
            if (parts.torch_norms) {
                layer_norm(parent, std::string(name), s.hidden);
            } else {
                weight_norm(parent, std::string(name), classes.plain("RMSNorm"), s.hidden);
            }
        };
        const Scope tokens =
            parts.embedding ? parts.embedding(model) : embedding(model, "embed_tokens", s.vocab, s.hidden);
        repeat(model, "layers", s.layers, classes.layer("DecoderLayer"), [&](Scope layer, std::int64_t i) {
            parts.attention(layer.child("self_attn", classes.plain("Attention")));
            if (parts.feed_forward) {
                parts.feed_forward(layer, i);
            } else {
                gated_mlp(layer, "mlp", classes, s, s.intermediate);
            }
            for (const std::string_view name : parts.layer_norms) {
                norm(layer, name);
            }
            for (const std::string_view name : parts.layer_dropouts) {
                dropout(layer, std::string(name));
            }
        });
        if (parts.tail) {
            parts.tail(model);
        } else {
            norm(model, "norm");
            rotary_embedding(model, "rotary_emb", classes.plain("RotaryEmbedding"), s.rotary_width);
        }
        return tokens;
    };
    return {.build = build, .vocab = s.vocab, .width = s.hidden, .tied = s.tied};
}

DecoderForward decoder_forward_of(const DecoderSizes& s) {
    return {.heads = s.heads, .kv_heads = s.kv_heads, .rotary_width = s.rotary_width, .act = s.act};
}

void attention_projections(Scope attention, const DecoderSizes& s, bool qkv_bias, bool out_bias,
                           std::string out_name) {
    linear(attention, "q_proj", s.hidden, s.q_width, qkv_bias);
    linear(attention, "k_proj", s.hidden, s.kv_width, qkv_bias);
    linear(attention, "v_proj", s.hidden, s.kv_width, qkv_bias);
    linear(attention, std::move(out_name), s.q_width, s.hidden, out_bias);
}

void query_key_norms(Scope attention, const PrefixedClasses& classes, std::int64_t q_width,
                     std::int64_t k_width) {
    weight_norm(attention, "q_norm", classes.plain("RMSNorm"), q_width);
    weight_norm(attention, "k_norm", classes.plain("RMSNorm"), k_width);
}

void gated_mlp(Scope parent, std::string name, const PrefixedClasses& classes, const DecoderSizes& s,
               std::int64_t intermediate, bool bias) {
    const Scope mlp = parent.child(std::move(name), classes.plain("MLP"));
    linear(mlp, "gate_proj", s.hidden, intermediate, bias);
    linear(mlp, "up_proj", s.hidden, intermediate, bias);
    linear(mlp, "down_proj", intermediate, s.hidden, bias);
    activation(mlp, "act_fn", s.act);
}

void fused_experts(Scope moe, const PrefixedClasses& classes, const DecoderSizes& s, std::int64_t experts,
                   std::int64_t intermediate) {
    const Scope module = moe.child("experts", classes.plain("Experts"));
    module.parameter("gate_up_proj", {experts, 2 * intermediate, s.hidden});
    module.parameter("down_proj", {experts, s.hidden, intermediate});
    activation(module, "act_fn", s.act);
}

Scope router(Scope moe, std::string name, const ModuleClass& router_class, const DecoderSizes& s,
             std::int64_t experts, std::optional<DType> dtype) {
    const Scope module = moe.child(std::move(name), router_class);
    module.parameter("weight", {experts, s.hidden}, dtype);
    return module;
}

Scope scaled_embedding(Scope model, const PrefixedClasses& classes, const DecoderSizes& s) {
    const Scope module =
        model.child("embed_tokens", classes.derived("TextScaledWordEmbedding", classes::embedding()));
    module.parameter("weight", {s.vocab, s.hidden});
    module.buffer("embed_scale", {}, {}, false);
    return module;
}

SparseLayers sparse_layers(const Config& config) {
    return {.dense = config.sizes("mlp_only_layers", {}), .step = whole(config, {"decoder_sparse_step"}, 1)};
}

bool SparseLayers::contains(std::int64_t layer) const {
    return (layer + 1) % step == 0 && std::ranges::find(dense, layer) == dense.end();
}

}  // namespace fsdplan
