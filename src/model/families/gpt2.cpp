#include "model/causal_lm.hpp"
#include "model/config_fields.hpp"
#include "operators/language_model.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr ClassSpace space{"transformers.models.gpt2.modeling_gpt2", "GPT2PreTrainedModel"};

constexpr std::int64_t default_positions = 1024;

struct Sizes {
    std::int64_t vocab, positions, hidden, layers, heads, inner;
    std::string act;
    bool cross_attention;
};

Sizes sizes_of(const Config& config) {
    const std::int64_t hidden = whole(config, {"hidden_size", "n_embd"}, 768);
    return {
        .vocab = whole(config, {"vocab_size"}, 50257),
        .positions = whole(config, {"max_position_embeddings", "n_positions"}, default_positions),
        .hidden = hidden,
        .layers = whole_count(config, {"num_hidden_layers", "n_layer"}, 12),
        .heads = whole(config, {"num_attention_heads", "n_head"}, 12),
        .inner = config.optional_size("n_inner").value_or(4 * hidden),
        .act = config.text("activation_function", "gelu_new"),
        .cross_attention = config.flag("add_cross_attention", false),
    };
}

/// transformers' Conv1D is a linear layer with a transposed weight.
void transposed_linear(Scope parent, std::string name, std::int64_t in, std::int64_t out) {
    static const ModuleClass conv1d = ClassSpace{"transformers.pytorch_utils", {}}.plain("Conv1D");
    const Scope m = parent.child(std::move(name), conv1d);
    m.parameter("weight", {in, out});
    m.parameter("bias", {out});
}

void add_attention(Scope layer, std::string name, const Sizes& s, bool cross) {
    const Scope attention = layer.child(std::move(name), space.plain("GPT2Attention"));
    transposed_linear(attention, "c_attn", s.hidden, (cross ? 2 : 3) * s.hidden);
    if (cross) {
        transposed_linear(attention, "q_attn", s.hidden, s.hidden);
    }
    transposed_linear(attention, "c_proj", s.hidden, s.hidden);
    dropout(attention, "attn_dropout");
    dropout(attention, "resid_dropout");
}

void fill_layer(Scope layer, const Sizes& s) {
    layer_norm(layer, "ln_1", s.hidden);
    add_attention(layer, "attn", s, false);
    layer_norm(layer, "ln_2", s.hidden);
    if (s.cross_attention) {
        add_attention(layer, "crossattention", s, true);
        layer_norm(layer, "ln_cross_attn", s.hidden);
    }
    const Scope mlp = layer.child("mlp", space.plain("GPT2MLP"));
    transposed_linear(mlp, "c_fc", s.hidden, s.inner);
    transposed_linear(mlp, "c_proj", s.inner, s.hidden);
    activation(mlp, "act", s.act);
    dropout(mlp, "dropout");
}

Backbone describe(const Config& config) {
    const Sizes s = sizes_of(config);
    check_layers(config, s.layers);
    if (s.layers > 0) {
        config.require_divides(s.heads, "n_head", s.hidden, "n_embd");
    }
    const auto build = [s](Scope model) {
        const Scope tokens = embedding(model, "wte", s.vocab, s.hidden);
        embedding(model, "wpe", s.positions, s.hidden);
        dropout(model, "drop");
        repeat(model, "h", s.layers, space.layer("GPT2Block"),
               [&](Scope layer, std::int64_t) { fill_layer(layer, s); });
        layer_norm(model, "ln_f", s.hidden);
        return tokens;
    };
    return {.build = build,
            .vocab = s.vocab,
            .width = s.hidden,
            .tied = config.flag("tie_word_embeddings", true)};
}

Value attention(Eager& f, ModuleIndex m, const Value& x, std::int64_t heads, double residual_dropout) {
    return f.call(m, {&x}, [&] {
        const std::vector<Value> qkv =
            op::split_last(f, layer::linear(f, layer::child(f, m, "c_attn"), x), 3);
        const auto by_head = [&](std::size_t i) { return attention::heads(f, qkv[i], heads, true); };
        Value mixed = attention::sdpa(f, by_head(0), by_head(1), by_head(2), {}, true);
        mixed = layer::linear(f, layer::child(f, m, "c_proj"), mixed);
        return layer::dropout(f, layer::child(f, m, "resid_dropout"), mixed, residual_dropout);
    });
}

Value feed_forward(Eager& f, ModuleIndex m, const Value& x, std::string_view act, double residual_dropout) {
    return f.call(m, {&x}, [&] {
        Value hidden = layer::linear(f, layer::child(f, m, "c_fc"), x);
        hidden = layer::activation(f, layer::child(f, m, "act"), hidden, act);
        hidden = layer::linear(f, layer::child(f, m, "c_proj"), hidden);
        return layer::dropout(f, layer::child(f, m, "dropout"), hidden, residual_dropout);
    });
}

Value block(Eager& f, ModuleIndex m, const Value& x, const Sizes& s, double residual_dropout) {
    return f.call(m, {&x}, [&] {
        Value hidden = layer::norm(f, layer::child(f, m, "ln_1"), x);
        const Value mixed = attention(f, layer::child(f, m, "attn"), hidden, s.heads, residual_dropout);
        hidden = op::add(f, mixed, x);
        const Value residual = hidden;
        hidden = layer::norm(f, layer::child(f, m, "ln_2"), hidden);
        const Value fed = feed_forward(f, layer::child(f, m, "mlp"), hidden, s.act, residual_dropout);
        return op::add(f, residual, fed);
    });
}

Value backbone_forward(const Config& config, Eager& f, ModuleIndex model, const Value& ids) {
    const Sizes s = sizes_of(config);
    const double residual_dropout = config.number("resid_pdrop", 0.1);
    const Value tokens = layer::input_embedding(f, layer::child(f, model, "wte"), ids);
    const Value positions = layer::embedding(f, layer::child(f, model, "wpe"), position_ids(f));
    Value hidden = op::add(f, tokens, positions);
    hidden = layer::dropout(f, layer::child(f, model, "drop"), hidden, config.number("embd_pdrop", 0.1));
    for (const ModuleIndex m : f.tree().children(layer::child(f, model, "h"))) {
        hidden = block(f, m, hidden, s, residual_dropout);
    }
    return layer::norm(f, layer::child(f, model, "ln_f"), hidden);
}

// The table of positions is part of the model, so its default counts too.
std::optional<std::int64_t> longest_sequence(const Config& config) {
    return sizes_of(config).positions;
}

constexpr std::array heads{
    Head{"GPT2LMHeadModel", HeadKind::causal_lm, "transformer"},
    Head{"GPT2ForSequenceClassification", HeadKind::sequence_classifier, "transformer"},
    Head{"GPT2ForTokenClassification", HeadKind::token_classifier, "transformer"},
    Head{"GPT2ForQuestionAnswering", HeadKind::question_answering, "transformer"},
};
constexpr DecoderFamily decoder_family{space, "GPT2Model", heads, describe};
constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"gpt2"};
constexpr std::array<std::string_view, 1> no_split{"GPT2Block"};

}  // namespace

extern const FamilyInfo gpt2;
constinit const FamilyInfo gpt2{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_sequence,
    .forward = causal_lm_forward<decoder_family, backbone_forward>,
};

}  // namespace fsdplan::builtin::family
