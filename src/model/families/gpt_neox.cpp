#include "model/causal_lm.hpp"
#include "model/config_fields.hpp"
#include "model/rope.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr ClassSpace space{"transformers.models.gpt_neox.modeling_gpt_neox", "GPTNeoXPreTrainedModel"};

constexpr RopeRules rope_rules{.partial_by_default = true, .partial_key = "rotary_pct", .partial = 0.25};

struct Sizes {
    std::int64_t vocab, hidden, intermediate, layers, heads, rotary_width;
    std::string act;
    bool attention_bias;
};

void fill_layer(Scope layer, const Sizes& s) {
    layer_norm(layer, "input_layernorm", s.hidden);
    layer_norm(layer, "post_attention_layernorm", s.hidden);
    dropout(layer, "post_attention_dropout");
    dropout(layer, "post_mlp_dropout");
    const Scope attention = layer.child("attention", space.plain("GPTNeoXAttention"));
    linear(attention, "query_key_value", s.hidden, 3 * s.hidden, s.attention_bias);
    linear(attention, "dense", s.hidden, s.hidden, s.attention_bias);
    const Scope mlp = layer.child("mlp", space.plain("GPTNeoXMLP"));
    linear(mlp, "dense_h_to_4h", s.hidden, s.intermediate, true);
    linear(mlp, "dense_4h_to_h", s.intermediate, s.hidden, true);
    activation(mlp, "act", s.act);
}

Sizes sizes_of(const Config& config) {
    Sizes sizes{
        .vocab = whole(config, {"vocab_size"}, 50432),
        .hidden = whole(config, {"hidden_size"}, 6144),
        .intermediate = whole(config, {"intermediate_size"}, 24576),
        .layers = whole_count(config, {"num_hidden_layers"}, 44),
        .heads = whole(config, {"num_attention_heads"}, 64),
        .rotary_width = 0,
        .act = config.text("hidden_act", "gelu"),
        .attention_bias = config.flag("attention_bias", true),
    };
    config.require_divides(sizes.heads, "num_attention_heads", sizes.hidden, "hidden_size");
    const std::int64_t head_dim = config.optional_size("head_dim").value_or(sizes.hidden / sizes.heads);
    sizes.rotary_width = rotary_width(config, rope_of(config), rope_rules, head_dim,
                                      config.has("head_dim") ? HeadDim::given : HeadDim::absent);
    return sizes;
}

Backbone describe(const Config& config) {
    const Sizes sizes = sizes_of(config);
    check_layers(config, sizes.layers);
    const auto build = [s = sizes](Scope model) {
        const Scope tokens = embedding(model, "embed_in", s.vocab, s.hidden);
        dropout(model, "emb_dropout");
        repeat(model, "layers", s.layers, space.layer("GPTNeoXLayer"),
               [&](Scope layer, std::int64_t) { fill_layer(layer, s); });
        layer_norm(model, "final_layer_norm", s.hidden);
        rotary_embedding(model, "rotary_emb", space.plain("GPTNeoXRotaryEmbedding"), s.rotary_width);
        return tokens;
    };
    return {.build = build,
            .vocab = sizes.vocab,
            .width = sizes.hidden,
            .tied = config.flag("tie_word_embeddings", false)};
}

Value attention(Eager& f, ModuleIndex m, const Value& x, const attention::Rotation& rotation,
                const Sizes& s) {
    return f.call(m, {&x}, [&] {
        const Value joined =
            attention::heads(f, layer::linear(f, layer::child(f, m, "query_key_value"), x), s.heads, false);
        std::vector<Value> qkv = op::split_last(f, joined, 3);
        std::tie(qkv[0], qkv[1]) = attention::rotate_part(f, qkv[0], qkv[1], rotation);
        // Joining the turned part with the rest makes q contiguous by heads.
        const Value mixed = attention::sdpa_by_head(f, qkv[0], qkv[1], qkv[2]);
        return layer::linear(f, layer::child(f, m, "dense"), mixed);
    });
}

Value feed_forward(Eager& f, ModuleIndex m, const Value& x, std::string_view act) {
    return f.call(m, {&x}, [&] {
        Value hidden = layer::linear(f, layer::child(f, m, "dense_h_to_4h"), x);
        hidden = layer::activation(f, layer::child(f, m, "act"), hidden, act);
        return layer::linear(f, layer::child(f, m, "dense_4h_to_h"), hidden);
    });
}

struct Residual {
    bool parallel;
    double dropout;
};

Value layer_forward(Eager& f, ModuleIndex m, const Value& x, const attention::Rotation& rotation,
                    const Sizes& s, Residual residual) {
    return f.call(m, {&x, &rotation.cos, &rotation.sin}, [&] {
        const auto dropped = [&](std::string_view name, const Value& of) {
            return layer::dropout(f, layer::child(f, m, name), of, residual.dropout);
        };
        const auto fed = [&](const Value& of) {
            const Value normed = layer::norm(f, layer::child(f, m, "post_attention_layernorm"), of);
            return feed_forward(f, layer::child(f, m, "mlp"), normed, s.act);
        };
        Value mixed = layer::norm(f, layer::child(f, m, "input_layernorm"), x);
        mixed = attention(f, layer::child(f, m, "attention"), mixed, rotation, s);
        mixed = dropped("post_attention_dropout", mixed);
        if (!residual.parallel) {
            mixed = op::add(f, mixed, x);
        }
        Value out = fed(residual.parallel ? x : mixed);
        out = dropped("post_mlp_dropout", out);
        const Value sum = op::add(f, out, mixed);
        return residual.parallel ? op::add(f, sum, x) : sum;
    });
}

Value backbone_forward(const Config& config, Eager& f, ModuleIndex model, const Value& ids) {
    const Sizes s = sizes_of(config);
    const Residual residual{.parallel = config.flag("use_parallel_residual", true),
                            .dropout = config.number("hidden_dropout", 0.0)};
    const Value tokens = layer::input_embedding(f, layer::child(f, model, "embed_in"), ids);
    Value hidden = layer::dropout(f, layer::child(f, model, "emb_dropout"), tokens, residual.dropout);
    const attention::Rotation rotation =
        attention::rotation(f, layer::child(f, model, "rotary_emb"), hidden, s.rotary_width);
    for (const ModuleIndex m : f.tree().children(layer::child(f, model, "layers"))) {
        hidden = layer_forward(f, m, hidden, rotation, s, residual);
    }
    return layer::norm(f, layer::child(f, model, "final_layer_norm"), hidden);
}

constexpr std::array heads{
    Head{"GPTNeoXForCausalLM", HeadKind::causal_lm, "gpt_neox"},
    Head{"GPTNeoXForSequenceClassification", HeadKind::sequence_classifier, "gpt_neox"},
    Head{"GPTNeoXForTokenClassification", HeadKind::token_classifier, "gpt_neox"},
    Head{"GPTNeoXForQuestionAnswering", HeadKind::question_answering, "gpt_neox"},
};
constexpr DecoderFamily decoder_family{space, "GPTNeoXModel", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"gpt_neox"};
constexpr std::array<std::string_view, 1> no_split{"GPTNeoXLayer"};

}  // namespace

extern const FamilyInfo gpt_neox;
constinit const FamilyInfo gpt_neox{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
    .forward = causal_lm_forward<decoder_family, backbone_forward>,
};

}  // namespace fsdplan::builtin::family
