#include "model/foundry_mpt.hpp"

#include "model/config_fields.hpp"
#include "operators/language_model.hpp"

namespace fsdplan {
namespace {

constexpr ClassSpace modeling{"llmfoundry.models.mpt.modeling_mpt", "MPTPreTrainedModel"};
constexpr ClassSpace layers_space{"llmfoundry.models.layers", {}};

struct Sizes {
    std::int64_t vocab, positions, hidden, layers, heads, inner;
    bool bias;
    bool learned_positions;
};

void refuse_other_models(const Config& config) {
    const Config attention = config.nested_or_empty("attn_config");
    for (const char* key : {"rope", "qk_ln", "qk_gn"}) {
        if (attention.flag(key, false)) {
            attention.refuse(key, "is not known of this MPT; expected false");
        }
    }
    if (attention.text("attn_type", "multihead_attention") != "multihead_attention") {
        attention.refuse("attn_type", "is not known; expected \"multihead_attention\"");
    }
    if (config.nested_or_empty("ffn_config").text("ffn_type", "mptmlp") != "mptmlp") {
        config.nested_or_empty("ffn_config").refuse("ffn_type", "is not known; expected \"mptmlp\"");
    }
    if (!config.flag("tie_word_embeddings", true)) {
        config.refuse("tie_word_embeddings", "is not known of this MPT; expected true");
    }
}

Sizes sizes_of(const Config& config) {
    const std::int64_t hidden = whole(config, {"d_model"}, 2048);
    return {.vocab = whole(config, {"vocab_size"}, 50368),
            .positions = whole(config, {"max_seq_len"}, 2048),
            .hidden = hidden,
            .layers = whole_count(config, {"n_layers"}, 24),
            .heads = whole(config, {"n_heads"}, 16),
            .inner = config.product(hidden, whole(config, {"expansion_ratio"}, 4)),
            .bias = !config.flag("no_bias", false),
            .learned_positions = config.flag("learned_pos_emb", true) &&
                                 !config.nested_or_empty("attn_config").flag("alibi", false)};
}

void low_precision_norm(Scope parent, std::string name, const Sizes& s) {
    const ModuleClass norm_class = layers_space.derived("norm.LPLayerNorm", classes::layer_norm());
    const Scope norm = parent.child(std::move(name), norm_class);
    norm.parameter("weight", {s.hidden});
    if (s.bias) {
        norm.parameter("bias", {s.hidden});
    }
}

void fill_block(Scope block, const Sizes& s) {
    low_precision_norm(block, "norm_1", s);
    const Scope attention = block.child("attn", layers_space.plain("attention.MultiheadAttention"));
    linear(attention, "Wqkv", s.hidden, 3 * s.hidden, s.bias);
    linear(attention, "out_proj", s.hidden, s.hidden, s.bias);
    low_precision_norm(block, "norm_2", s);
    const Scope ffn = block.child("ffn", layers_space.plain("ffn.MPTMLP"));
    linear(ffn, "up_proj", s.hidden, s.inner, s.bias);
    linear(ffn, "down_proj", s.inner, s.hidden, s.bias);
    dropout(block, "resid_attn_dropout");
    dropout(block, "resid_ffn_dropout");
}

/// Rows picked into new memory, as flash-attn's bert_padding takes padding out and puts it in again.
Value picked(Eager& f, const Value& x, std::string_view name) {
    const Result like{x.shape(), x.dtype()};
    Value out = f.run(name, like, {&x});
    f.node({&out}, {&x}, {},
           [like](Eager& e, Gradients& g) { g.give(0, e.run("scatter", like, {&g.of_output()})); });
    return out;
}

Value attention_forward(Eager& f, ModuleIndex m, const Value& x, const Sizes& s) {
    return f.call(m, {&x}, [&] {
        const Value qkv = layer::linear(f, layer::child(f, m, "Wqkv"), x);
        const std::vector<Value> parts = op::split_last(f, qkv, 3);
        const auto unpadded = [&](std::size_t i) {
            return attention::heads(f, picked(f, parts[i], "gather"), s.heads, true);
        };
        Value q = unpadded(0);
        Value k = unpadded(1);
        Value v = unpadded(2);
        Value mixed = attention::sdpa(f, std::move(q), std::move(k), std::move(v), {}, true);
        mixed = picked(f, mixed, "index_put");
        return layer::linear(f, layer::child(f, m, "out_proj"), mixed);
    });
}

Value ffn_forward(Eager& f, ModuleIndex m, const Value& x) {
    return f.call(m, {&x}, [&] {
        Value hidden = layer::linear(f, layer::child(f, m, "up_proj"), x);
        hidden = op::activation(f, std::move(hidden), "gelu");
        return layer::linear(f, layer::child(f, m, "down_proj"), hidden);
    });
}

Value block_forward(Eager& f, ModuleIndex m, const Value& x, const Sizes& s, double residual_dropout) {
    return f.call(m, {&x}, [&] {
        const auto dropped = [&](const char* name, const Value& value) {
            return layer::dropout(f, layer::child(f, m, name), value, residual_dropout);
        };
        const Value normed = layer::norm(f, layer::child(f, m, "norm_1"), x);
        const Value mixed = attention_forward(f, layer::child(f, m, "attn"), normed, s);
        const Value hidden = op::add(f, x, dropped("resid_attn_dropout", mixed));
        const Value second = layer::norm(f, layer::child(f, m, "norm_2"), hidden);
        const Value fed = ffn_forward(f, layer::child(f, m, "ffn"), second);
        return op::add(f, hidden, dropped("resid_ffn_dropout", fed));
    });
}

Value model_forward(const Config& config, Eager& f, ModuleIndex m, const Value& ids, const Sizes& s) {
    return f.call(m, {&ids}, [&] {
        Value hidden = layer::embedding(f, layer::child(f, m, "wte"), ids);
        if (s.learned_positions) {
            const Value positions = f.run("clamp", {ids.shape(), DType::int64}, {&ids});
            const Value placed = layer::embedding(f, layer::child(f, m, "wpe"), positions);
            hidden = op::add(f, std::move(hidden), placed);
        }
        hidden = layer::dropout(f, layer::child(f, m, "emb_drop"), hidden, config.number("emb_pdrop", 0.0));
        const double residual_dropout = config.number("resid_pdrop", 0.0);
        for (const ModuleIndex block : f.tree().children(layer::child(f, m, "blocks"))) {
            hidden = block_forward(f, block, hidden, s, residual_dropout);
        }
        return layer::norm(f, layer::child(f, m, "norm_f"), hidden);
    });
}

/// flash-attn's kernel: float32 inside, so that nothing but the logits and a sum for each row is kept.
Value fused_cross_entropy(Eager& f, const Value& logits, const Value& target) {
    const Result like{logits.shape(), logits.dtype()};
    const Result per_row{{logits.size(0)}, DType::float32};
    Value losses = f.run("xentropy_forward", per_row, {&logits});
    const Value sums = f.also(per_row);
    f.node({&losses}, {&logits}, {&logits, &sums, &target},
           [like](Eager& e, Gradients& g) { g.give(0, e.run("xentropy_backward", like, {&g.of_output()})); });
    Value total = f.run("sum", {{}, DType::float32}, {&losses});
    f.node({&total}, {&losses}, {},
           [per_row](Eager& e, Gradients& g) { g.give(0, e.run("div", per_row, {&g.of_output()})); });
    return total;
}

}  // namespace

void build_foundry_mpt(const Config& config, const Place& place) {
    refuse_other_models(config);
    const Sizes s = sizes_of(config);
    check_layers(config, s.layers);
    config.require_divides(s.heads, "n_heads", s.hidden, "d_model");
    place.builder().graph().no_split_classes = {"MPTBlock"};
    const Scope top = place.create(modeling.generative(foundry_mpt_class));
    const Scope model = top.child("transformer", modeling.pretrained("MPTModel"));
    embedding(model, "wte", layers_space.derived("custom_embedding.SharedEmbedding", classes::embedding()),
              s.vocab, s.hidden);
    if (s.learned_positions) {
        embedding(model, "wpe", s.positions, s.hidden);
    }
    dropout(model, "emb_drop");
    repeat(model, "blocks", s.layers, layers_space.plain("blocks.MPTBlock"),
           [&](Scope block, std::int64_t) { fill_block(block, s); });
    low_precision_norm(model, "norm_f", s);
}

Value foundry_mpt_forward(const Config& config, Eager& f, ModuleIndex top) {
    if (short_name(f.tree().class_info(top).name) != foundry_mpt_class ||
        f.workload().attention != AttentionImplementation::sdpa ||
        f.workload().loss.kind != Loss::Kind::cross_entropy) {
        return {};
    }
    const Sizes s = sizes_of(config);
    const Value ids = token_ids(f);
    Value logits = f.call(top, {&ids}, [&] {
        const ModuleIndex model = layer::child(f, top, "transformer");
        const Value hidden = model_forward(config, f, model, ids, s);
        const ModuleIndex tokens = layer::child(f, model, "wte");
        return f.call(tokens, {&hidden},
                      [&] { return op::linear(f, hidden, f.parameter(tokens, "weight")); });
    });
    f.use_as(logits, Storage::Use::logits);
    const std::int64_t rows = logits.size(0) * logits.size(1);
    const Value labels = f.run("roll", {{rows}, DType::int64}, {});
    return fused_cross_entropy(f, f.view(logits, Shape{rows, s.vocab}), labels);
}

}  // namespace fsdplan
