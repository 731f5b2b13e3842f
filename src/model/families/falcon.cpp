#include "model/causal_lm.hpp"
#include "model/config_fields.hpp"
#include "model/rope.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr ClassSpace space{"transformers.models.falcon.modeling_falcon", "FalconPreTrainedModel"};

struct Sizes {
    std::int64_t vocab, hidden, inner, layers, heads, qkv_width, rotary_width;
    std::string act;
    bool bias, parallel, two_norms;
};

std::int64_t qkv_width(const Config& config, std::int64_t hidden, std::int64_t heads, bool new_architecture) {
    const std::int64_t head_dim = hidden / heads;
    if (new_architecture) {
        const std::int64_t kv_heads = config.optional_size("num_kv_heads").value_or(heads);
        return checked_mul(2 * kv_heads + heads, head_dim, config.value().where());
    }
    return nullable_flag(config, "multi_query", true) ? hidden + 2 * head_dim : 3 * hidden;
}

Sizes sizes_of(const Config& config) {
    const std::int64_t hidden = config.size({"n_embed", "hidden_size"}, 4544);
    const std::int64_t heads = whole(config, {"num_attention_heads"}, 71);
    const bool new_architecture = nullable_flag(config, "new_decoder_architecture", false);
    if (config.has("head_dim")) {
        config.refuse("head_dim", "falcon derives it from hidden_size and num_attention_heads");
    }
    const std::int64_t norms =
        config.optional_size("num_ln_in_parallel_attn").value_or(new_architecture ? 2 : 1);
    return {
        .vocab = whole(config, {"vocab_size"}, 65024),
        .hidden = hidden,
        .inner = config.optional_size("ffn_hidden_size").value_or(4 * hidden),
        .layers = whole_count(config, {"num_hidden_layers"}, 32),
        .heads = heads,
        .qkv_width = qkv_width(config, hidden, heads, new_architecture),
        .rotary_width = rotary_width(config, rope_of(config), {}, hidden / heads, HeadDim::given),
        .act = config.text("activation", "gelu"),
        .bias = nullable_flag(config, "bias", false),
        .parallel = nullable_flag(config, "parallel_attn", true),
        .two_norms = norms == 2,
    };
}

void falcon_linear(Scope parent, std::string name, std::int64_t in, std::int64_t out, bool bias) {
    const Scope m = parent.child(std::move(name), space.derived("FalconLinear", classes::linear()));
    m.parameter("weight", {out, in});
    if (bias) {
        m.parameter("bias", {out});
    }
}

void fill_layer(Scope layer, const Sizes& s) {
    const Scope attention = layer.child("self_attention", space.plain("FalconAttention"));
    falcon_linear(attention, "query_key_value", s.hidden, s.qkv_width, s.bias);
    falcon_linear(attention, "dense", s.hidden, s.hidden, s.bias);
    dropout(attention, "attention_dropout");
    const Scope mlp = layer.child("mlp", space.plain("FalconMLP"));
    falcon_linear(mlp, "dense_h_to_4h", s.hidden, s.inner, s.bias);
    activation(mlp, "act", s.act);
    falcon_linear(mlp, "dense_4h_to_h", s.inner, s.hidden, s.bias);
    if (!s.parallel) {
        layer_norm(layer, "post_attention_layernorm", s.hidden);
        layer_norm(layer, "input_layernorm", s.hidden);
    } else if (s.two_norms) {
        layer_norm(layer, "ln_attn", s.hidden);
        layer_norm(layer, "ln_mlp", s.hidden);
    } else {
        layer_norm(layer, "input_layernorm", s.hidden);
    }
}

Backbone describe(const Config& config) {
    const Sizes s = sizes_of(config);
    check_layers(config, s.layers);
    if (s.layers > 0) {
        config.require_divides(s.heads, "num_attention_heads", s.hidden, "hidden_size");
    }
    const auto build = [s](Scope model) {
        const Scope tokens = embedding(model, "word_embeddings", s.vocab, s.hidden);
        repeat(model, "h", s.layers, space.layer("FalconDecoderLayer"),
               [&](Scope layer, std::int64_t) { fill_layer(layer, s); });
        layer_norm(model, "ln_f", s.hidden);
        rotary_embedding(model, "rotary_emb", space.plain("FalconRotaryEmbedding"), s.rotary_width);
        return tokens;
    };
    return {.build = build,
            .vocab = s.vocab,
            .width = s.hidden,
            .tied = config.flag("tie_word_embeddings", true)};
}

constexpr std::array heads{
    Head{"FalconForCausalLM", HeadKind::causal_lm, "transformer"},
    Head{"FalconForSequenceClassification", HeadKind::sequence_classifier, "transformer"},
    Head{"FalconForTokenClassification", HeadKind::token_classifier, "transformer"},
    Head{"FalconForQuestionAnswering", HeadKind::question_answering, "transformer"},
};
constexpr DecoderFamily decoder_family{space, "FalconModel", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"falcon"};
constexpr std::array<std::string_view, 1> no_split{"FalconDecoderLayer"};

}  // namespace

extern const FamilyInfo falcon;
constinit const FamilyInfo falcon{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
