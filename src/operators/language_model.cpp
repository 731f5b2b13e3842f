#include "operators/language_model.hpp"

namespace fsdplan {
namespace {

using layer::child;

Value self_attention(Eager& f, ModuleIndex m, const Value& x, const attention::Rotation& rotation,
                     const DecoderForward& sizes) {
    return f.call(m, {&x}, [&] {
        Value q = attention::heads(f, layer::linear(f, child(f, m, "q_proj"), x), sizes.heads, false);
        Value k = attention::heads(f, layer::linear(f, child(f, m, "k_proj"), x), sizes.kv_heads, false);
        const Value v = attention::heads(f, layer::linear(f, child(f, m, "v_proj"), x), sizes.kv_heads, true);
        std::tie(q, k) = attention::rotate(f, q, k, rotation);
        const Value mixed = attention::sdpa(f, q, k, v);
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

Value decoder_layer(Eager& f, ModuleIndex m, const Value& x, const attention::Rotation& rotation,
                    const DecoderForward& sizes) {
    return f.call(m, {&x, &rotation.cos, &rotation.sin}, [&] {
        Value hidden = layer::rms_norm(f, child(f, m, "input_layernorm"), x);
        hidden = self_attention(f, child(f, m, "self_attn"), hidden, rotation, sizes);
        hidden = op::add(f, x, std::move(hidden));
        const Value residual = hidden;
        hidden = layer::rms_norm(f, child(f, m, "post_attention_layernorm"), hidden);
        hidden = gated_mlp(f, child(f, m, "mlp"), hidden, sizes);
        return op::add(f, residual, std::move(hidden));
    });
}

}  // namespace

Value token_ids(Eager& f) {
    return f.outside({f.workload().batch, f.workload().sequence}, DType::int64);
}

Value causal_lm_loss(Eager& f, const Value& logits) {
    const std::int64_t batch = logits.size(0);
    const std::int64_t sequence = logits.size(1);
    const Value wide = op::to(f, logits, DType::float32);
    Value labels = f.run("constant_pad_nd", {{batch, sequence + 1}, DType::int64}, {});
    labels = f.run("clone", {{batch * sequence}, DType::int64}, {&labels});
    const Value flat = f.view(wide, Shape{batch * sequence, wide.size(2)});
    return op::cross_entropy(f, flat, labels);
}

Value token_loss(Eager& f, const Value& logits) {
    const Value flat = f.view(logits, Shape{logits.size(0) * logits.size(1), logits.size(2)});
    return op::cross_entropy(f, flat, f.outside({flat.size(0)}, DType::int64));
}

Value causal_lm(Eager& f, ModuleIndex top, std::string_view backbone, std::string_view head,
                const std::function<Value(ModuleIndex backbone, const Value& ids)>& body) {
    const Value ids = token_ids(f);
    return f.call(top, {&ids}, [&] {
        const ModuleIndex model = child(f, top, backbone);
        const Value hidden = f.call(model, {&ids}, [&] { return body(model, ids); });
        const Value logits = layer::linear(f, child(f, top, head), hidden);
        f.use_as(logits, Storage::Use::logits);
        return causal_lm_loss(f, logits);
    });
}

Value decoder_forward(Eager& f, ModuleIndex model, const Value& ids, const DecoderForward& sizes) {
    Value hidden = layer::embedding(f, child(f, model, "embed_tokens"), ids);
    const attention::Rotation rotation =
        attention::rotation(f, child(f, model, "rotary_emb"), hidden, sizes.rotary_width);
    const ModuleIndex layers = child(f, model, "layers");
    for (const ModuleIndex m : f.tree().children(layers)) {
        hidden = decoder_layer(f, m, hidden, rotation, sizes);
    }
    return layer::rms_norm(f, child(f, model, "norm"), hidden);
}

}  // namespace fsdplan
