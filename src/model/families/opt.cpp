#include "model/causal_lm.hpp"
#include "model/config_fields.hpp"
#include "operators/language_model.hpp"

namespace fsdplan::builtin::family {
namespace {

constexpr ClassSpace space{"transformers.models.opt.modeling_opt", "OPTPreTrainedModel"};

constexpr std::int64_t position_offset = 2;  // rows that the first checkpoints kept for padding
constexpr std::int64_t default_positions = 2048;

struct Sizes {
    std::int64_t vocab, positions, hidden, inner, layers, heads, word_width;
    std::string act;
    bool final_norm, bias, affine;
};

Sizes sizes_of(const Config& config) {
    const std::int64_t hidden = whole(config, {"hidden_size"}, 768);
    return {
        .vocab = whole(config, {"vocab_size"}, 50272),
        .positions = whole(config, {"max_position_embeddings"}, default_positions),
        .hidden = hidden,
        .inner = whole(config, {"ffn_dim"}, 3072),
        .layers = whole_count(config, {"num_hidden_layers"}, 12),
        .heads = whole(config, {"num_attention_heads"}, 12),
        .word_width = config.optional_size("word_embed_proj_dim").value_or(hidden),
        .act = config.text("activation_function", "relu"),
        .final_norm =
            config.flag("do_layer_norm_before", true) && !config.flag("_remove_final_layer_norm", false),
        .bias = config.flag("enable_bias", true),
        .affine = config.flag("layer_norm_elementwise_affine", true),
    };
}

void add_norm(Scope parent, std::string name, const Sizes& s) {
    if (s.affine) {
        layer_norm(parent, std::move(name), s.hidden);
    } else {
        parent.child(std::move(name), classes::layer_norm());
    }
}

void fill_layer(Scope layer, const Sizes& s) {
    const Scope attention = layer.child("self_attn", space.plain("OPTAttention"));
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
        linear(attention, name, s.hidden, s.hidden, s.bias);
    }
    activation(layer, "activation_fn", s.act);
    add_norm(layer, "self_attn_layer_norm", s);
    linear(layer, "fc1", s.hidden, s.inner, s.bias);
    linear(layer, "fc2", s.inner, s.hidden, s.bias);
    add_norm(layer, "final_layer_norm", s);
}

Backbone describe(const Config& config) {
    const Sizes s = sizes_of(config);
    check_layers(config, s.layers);
    check_padding(config, 1, s.vocab);
    if (s.layers > 0) {
        config.require_divides(s.heads, "num_attention_heads", s.hidden, "hidden_size");
    }
    const auto build = [s](Scope model) {
        const Scope decoder = model.child("decoder", space.pretrained("OPTDecoder"));
        const Scope tokens = embedding(decoder, "embed_tokens", s.vocab, s.word_width);
        decoder.child("embed_positions", space.derived("OPTLearnedPositionalEmbedding", classes::embedding()))
            .parameter("weight", {s.positions + position_offset, s.hidden});
        if (s.word_width != s.hidden) {
            linear(decoder, "project_out", s.hidden, s.word_width, false);
            linear(decoder, "project_in", s.word_width, s.hidden, false);
        }
        if (s.final_norm) {
            add_norm(decoder, "final_layer_norm", s);
        }
        repeat(decoder, "layers", s.layers, space.layer("OPTDecoderLayer"),
               [&](Scope layer, std::int64_t) { fill_layer(layer, s); });
        return tokens;
    };
    return {.build = build,
            .vocab = s.vocab,
            .width = s.word_width,
            .tied = config.flag("tie_word_embeddings", true)};
}

// The table of positions is part of the model, so its default counts too.
std::optional<std::int64_t> longest_sequence(const Config& config) {
    return sizes_of(config).positions;
}

Value attention_forward(Eager& f, ModuleIndex m, const Value& x, std::int64_t heads) {
    return f.call(m, {&x}, [&] {
        const auto projected = [&](std::string_view name) {
            return layer::linear(f, layer::child(f, m, name), x);
        };
        const Value q = attention::heads(f, op::mul_scalar(f, projected("q_proj")), heads, true);
        Value k = projected("k_proj");
        Value v = projected("v_proj");
        k = attention::heads(f, k, heads, true);
        v = attention::heads(f, v, heads, true);
        return layer::linear(f, layer::child(f, m, "out_proj"), attention::sdpa(f, q, k, v, {}, true));
    });
}

struct Layer {
    const Sizes& sizes;
    bool norm_first;
    double dropout;
};

Value layer_forward(Eager& f, ModuleIndex m, const Value& x, const Layer& how) {
    return f.call(m, {&x}, [&] {
        const auto normed = [&](std::string_view name, const Value& of) {
            return layer::norm(f, layer::child(f, m, name), of);
        };
        Value hidden = how.norm_first ? normed("self_attn_layer_norm", x) : x;
        hidden = attention_forward(f, layer::child(f, m, "self_attn"), hidden, how.sizes.heads);
        hidden = op::dropout(f, hidden, how.dropout);
        hidden = op::add(f, x, hidden);
        if (!how.norm_first) {
            hidden = normed("self_attn_layer_norm", hidden);
        }
        hidden = op::reshape(f, hidden, {x.size(0) * x.size(1), x.size(2)});
        const Value residual = hidden;
        if (how.norm_first) {
            hidden = normed("final_layer_norm", hidden);
        }
        hidden = layer::linear(f, layer::child(f, m, "fc1"), hidden);
        hidden = layer::activation(f, layer::child(f, m, "activation_fn"), hidden, how.sizes.act);
        hidden = layer::linear(f, layer::child(f, m, "fc2"), hidden);
        hidden = op::dropout(f, hidden, how.dropout);
        hidden = op::reshape(f, op::add(f, residual, hidden), x.shape());
        return how.norm_first ? hidden : normed("final_layer_norm", hidden);
    });
}

/// Positions count what the mask shows, in float32.
Value mask_positions(Eager& f) {
    const Shape shape{f.workload().batch, f.workload().sequence};
    const Value mask = f.run("ones", {shape, DType::float32}, {});
    Value positions = f.run("cumsum", {shape, DType::float32}, {&mask});
    positions = f.run("mul", {shape, DType::float32}, {&positions, &mask});
    positions = f.run("sub", {shape, DType::float32}, {&positions});
    return op::to(f, positions, DType::int64);
}

Value decoder_forward(const Config& config, Eager& f, ModuleIndex m, const Value& ids) {
    const Sizes s = sizes_of(config);
    const Layer how{.sizes = s,
                    .norm_first = config.flag("do_layer_norm_before", true),
                    .dropout = config.number("dropout", 0.1)};
    if (config.number("layerdrop", 0.0) > 0.0) {
        f.note("layers that layerdrop leaves out are counted");
    }
    Value tokens = layer::input_embedding(f, layer::child(f, m, "embed_tokens"), ids);
    const Value positions = mask_positions(f);
    const ModuleIndex table = layer::child(f, m, "embed_positions");
    const Value position_rows = f.call(table, {&positions}, [&] {
        const Value shifted = f.run("add", {positions.shape(), DType::int64}, {&positions});
        return op::embedding(f, shifted, f.parameter(table, "weight"));
    });
    const auto projected = [&](std::string_view name, const Value& of) {
        const std::optional<ModuleIndex> projection = f.child(m, name);
        return projection ? layer::linear(f, *projection, of) : of;
    };
    tokens = projected("project_in", tokens);
    Value hidden = op::add(f, tokens, position_rows);
    for (const ModuleIndex one : f.tree().children(layer::child(f, m, "layers"))) {
        hidden = layer_forward(f, one, hidden, how);
    }
    if (const std::optional<ModuleIndex> norm = f.child(m, "final_layer_norm")) {
        hidden = layer::norm(f, *norm, hidden);
    }
    return projected("project_out", hidden);
}

constexpr std::array heads{
    Head{"OPTForCausalLM", HeadKind::causal_lm},
    Head{"OPTForSequenceClassification", HeadKind::sequence_classifier},
    Head{"OPTForQuestionAnswering", HeadKind::question_answering},
};
constexpr DecoderFamily decoder_family{space, "OPTModel", heads, describe};

// The model with a language head calls the decoder itself, not the model around it.
Value forward(const Config& config, Eager& f, ModuleIndex top) {
    if (!is_causal_lm(decoder_family, f.tree(), top) ||
        f.workload().attention == AttentionImplementation::eager) {
        return {};
    }
    const Value ids = token_ids(f);
    return f.call(top, {&ids}, [&] {
        const ModuleIndex decoder = layer::child(f, layer::child(f, top, "model"), "decoder");
        const Value hidden =
            f.call(decoder, {&ids}, [&] { return decoder_forward(config, f, decoder, ids); });
        return head_and_loss(f, layer::child(f, top, "lm_head"), hidden);
    });
}

constexpr auto architectures = architectures_of<decoder_family>();
constexpr std::array<std::string_view, 1> model_types{"opt"};
constexpr std::array<std::string_view, 1> no_split{"OPTDecoderLayer"};

}  // namespace

extern const FamilyInfo opt;
constinit const FamilyInfo opt{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = decoder_family.model,
    .no_split_classes = no_split,
    .longest_sequence = longest_sequence,
    .forward = forward,
};

}  // namespace fsdplan::builtin::family
