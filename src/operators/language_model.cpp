#include "operators/language_model.hpp"

#include "operators/experts.hpp"

namespace fsdplan {
namespace {

using layer::child;

/// What all layers of a model share.
struct Around {
    const DecoderForward& sizes;
    attention::Rotation rotation;
    Value mask;  // of eager attention, or of a window shorter than the sequence
    bool is_eager = false;
};

Value norm(Eager& f, ModuleIndex m, const Value& x, const DecoderForward& sizes) {
    return sizes.norm_adds_one ? layer::rms_norm_plus_one(f, m, x) : layer::rms_norm(f, m, x);
}

/// A projection, by heads; some models norm each head.
Value projected(Eager& f, ModuleIndex m, std::string_view name, const Value& x, std::int64_t heads) {
    const Value flat = layer::linear(f, child(f, m, std::string(name) + "_proj"), x);
    const std::optional<ModuleIndex> norm = f.child(m, std::string(name) + "_norm");
    if (!norm) {
        return attention::heads(f, flat, heads, false);
    }
    const Value split = f.view(flat, Shape{x.size(0), x.size(1), heads, flat.size(2) / heads});
    const Value normed = layer::rms_norm(f, *norm, split);
    return attention::heads(f, f.view(normed, flat.shape()), heads, false);
}

Value self_attention(Eager& f, ModuleIndex m, const Value& x, const Around& around) {
    return f.call(m, {&x}, [&] {
        const DecoderForward& sizes = around.sizes;
        // Python lets go of its locals from the first on.
        Value v;
        Value k;
        Value q = projected(f, m, "q", x, sizes.heads);
        k = projected(f, m, "k", x, sizes.kv_heads);
        // The kernel lays the gradient of v out as the projection wants it, unless heads were repeated.
        const bool laid_out = !around.is_eager && !(around.mask && sizes.heads != sizes.kv_heads);
        v = attention::heads(f, layer::linear(f, child(f, m, "v_proj"), x), sizes.kv_heads, laid_out);
        std::tie(q, k) = attention::rotate(f, q, k, around.rotation);
        const Value mixed = around.is_eager ? attention::eager(f, q, k, v, around.mask, sizes.capped_scores)
                                            : attention::sdpa(f, q, k, v, around.mask, true);
        return layer::linear(f, child(f, m, "o_proj"), mixed);
    });
}

Value gated_mlp(Eager& f, ModuleIndex m, const Value& x, const DecoderForward& sizes) {
    return f.call(m, {&x}, [&] {
        Value gate = layer::linear(f, child(f, m, "gate_proj"), x);
        Value active = layer::activation(f, child(f, m, "act_fn"), gate, sizes.act);
        gate.reset();
        Value up = layer::linear(f, child(f, m, "up_proj"), x);
        const Value both = op::mul(f, std::move(active), std::move(up));
        return layer::linear(f, child(f, m, "down_proj"), both);
    });
}

Value feed_forward(Eager& f, ModuleIndex m, const Value& x, const DecoderForward& sizes) {
    return f.child(m, "experts") ? sparse_mlp(f, m, x, sizes.experts_per_token, sizes.act)
                                 : gated_mlp(f, m, x, sizes);
}

Value decoder_layer(Eager& f, ModuleIndex m, const Value& x, const Around& around) {
    Values passed{&x, &around.rotation.cos, &around.rotation.sin};
    if (around.mask) {
        passed.push_back(&around.mask);
    }
    return f.call(m, passed, [&] {
        const auto normed = [&](std::string_view name, const Value& of) {
            return norm(f, child(f, m, name), of, around.sizes);
        };
        // Sandwiched layers norm what comes out of attention and feed-forward too.
        const bool sandwich = f.child(m, "pre_feedforward_layernorm").has_value();
        Value hidden = normed("input_layernorm", x);
        hidden = self_attention(f, child(f, m, "self_attn"), hidden, around);
        if (sandwich) {
            hidden = normed("post_attention_layernorm", hidden);
        }
        hidden = op::add(f, x, std::move(hidden));
        const Value residual = hidden;
        hidden = normed(sandwich ? "pre_feedforward_layernorm" : "post_attention_layernorm", hidden);
        hidden = feed_forward(f, child(f, m, "mlp"), hidden, around.sizes);
        if (sandwich) {
            hidden = normed("post_feedforward_layernorm", hidden);
        }
        return op::add(f, residual, std::move(hidden));
    });
}

}  // namespace

Value token_ids(Eager& f) {
    return f.outside({f.workload().batch, f.workload().sequence}, DType::int64);
}

Value position_ids(Eager& f) {
    const Result positions{{1, f.workload().sequence}, DType::int64};
    const Value from_zero = f.run("arange", positions, {});
    return f.run("add", positions, {&from_zero});
}

Value causal_lm(Eager& f, ModuleIndex top, std::string_view backbone, std::string_view head,
                const std::function<Value(ModuleIndex backbone, const Value& ids)>& body,
                bool capped_logits) {
    const Value ids = token_ids(f);
    return f.call(top, {&ids}, [&] {
        const ModuleIndex model = child(f, top, backbone);
        const Value hidden = f.call(model, {&ids}, [&] { return body(model, ids); });
        return head_and_loss(f, child(f, top, head), hidden, capped_logits);
    });
}

Value decoder_forward(Eager& f, ModuleIndex model, const Value& ids, const DecoderForward& sizes) {
    Value hidden = layer::input_embedding(f, child(f, model, "embed_tokens"), ids, sizes.scaled_embedding);
    Around around{.sizes = sizes, .rotation = {}, .mask = {}};
    const bool has_flash = f.workload().attention == AttentionImplementation::flash_attention_2;
    around.is_eager =
        f.workload().attention == AttentionImplementation::eager || (sizes.capped_scores && !has_flash);
    if (around.is_eager) {
        around.mask = attention::eager_mask(f, ids.size(0), ids.size(1), hidden.dtype());
    } else if (sizes.window && *sizes.window <= ids.size(1) && !has_flash) {
        around.mask = attention::window_mask(f, ids.size(1));
    }
    around.rotation = attention::rotation(f, child(f, model, "rotary_emb"), hidden, sizes.rotary_width);
    const Value embedded = hidden;  // a name that forward keeps to its end
    for (const ModuleIndex m : f.tree().children(child(f, model, "layers"))) {
        hidden = decoder_layer(f, m, hidden, around);
    }
    hidden = norm(f, child(f, model, "norm"), hidden, sizes);
    return hidden;
}

}  // namespace fsdplan
