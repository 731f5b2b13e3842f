#include <array>

#include "model/family.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr ClassSpace space{"transformers.models.llama.modeling_llama", "LlamaPreTrainedModel"};

struct Llama {
    explicit Llama(const Config& c)
        : hidden(c.size("hidden_size", 4096)),
          intermediate(c.size("intermediate_size", 11008)),
          layers(c.count("num_hidden_layers", 32)),
          heads(c.size("num_attention_heads", 32)),
          kv_heads(c.optional_size("num_key_value_heads").value_or(heads)),
          head_dim(c.optional_size("head_dim").value_or(hidden / heads)),
          vocab(c.size("vocab_size", 32000)),
          attention_bias(c.flag("attention_bias", false)),
          mlp_bias(c.flag("mlp_bias", false)),
          act(c.text("hidden_act", "silu")),
          tied(c.flag("tie_word_embeddings", false)) {
        c.require_divides(heads, "num_attention_heads", hidden, "hidden_size");
    }

    std::int64_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab;
    bool attention_bias, mlp_bias;
    std::string act;
    bool tied;
};

void decoder_layer(const Llama& c, Scope layers, std::string name) {
    const Scope layer = layers.child(std::move(name), space.layer("LlamaDecoderLayer"));
    const Scope attention = layer.child("self_attn", space.plain("LlamaAttention"));
    linear(attention, "q_proj", c.hidden, c.heads * c.head_dim, c.attention_bias);
    linear(attention, "k_proj", c.hidden, c.kv_heads * c.head_dim, c.attention_bias);
    linear(attention, "v_proj", c.hidden, c.kv_heads * c.head_dim, c.attention_bias);
    linear(attention, "o_proj", c.heads * c.head_dim, c.hidden, c.attention_bias);
    const Scope mlp = layer.child("mlp", space.plain("LlamaMLP"));
    linear(mlp, "gate_proj", c.hidden, c.intermediate, c.mlp_bias);
    linear(mlp, "up_proj", c.hidden, c.intermediate, c.mlp_bias);
    linear(mlp, "down_proj", c.intermediate, c.hidden, c.mlp_bias);
    activation(mlp, "act_fn", c.act);
    weight_norm(layer, "input_layernorm", space.plain("LlamaRMSNorm"), c.hidden);
    weight_norm(layer, "post_attention_layernorm", space.plain("LlamaRMSNorm"), c.hidden);
}

Scope backbone(const Llama& c, const Place& place) {
    const Scope model = place.create(space.pretrained("LlamaModel"));
    embedding(model, "embed_tokens", c.vocab, c.hidden);
    const Scope layers = module_list(model, "layers");
    for (std::int64_t i = 0; i < c.layers; ++i) {
        decoder_layer(c, layers, std::to_string(i));
    }
    weight_norm(model, "norm", space.plain("LlamaRMSNorm"), c.hidden);
    rotary_embedding(model, "rotary_emb", space.plain("LlamaRotaryEmbedding"), c.head_dim);
    return model;
}

void causal_lm(const Config& config, const Place& place) {
    const Llama c(config);
    const Scope root = place.create(space.generative("LlamaForCausalLM"));
    const Scope model = backbone(c, Place(root, "model"));
    const Scope head = linear(root, "lm_head", c.hidden, c.vocab, false);
    if (c.tied) {
        head.tie("weight", model["embed_tokens"], "weight");
    }
}

constexpr std::array<std::string_view, 1> model_types{"llama"};
constexpr std::array<std::string_view, 1> no_split{"LlamaDecoderLayer"};
constexpr std::array architectures{
    Architecture{"LlamaForCausalLM", causal_lm},
    Architecture{"LlamaModel",
                 [](const Config& config, const Place& place) { backbone(Llama(config), place); }},
};

}  // namespace

extern const FamilyInfo llama;
constinit const FamilyInfo llama{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "LlamaModel",
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
