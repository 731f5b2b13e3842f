#include "operators/bert.hpp"

#include "operators/language_model.hpp"

namespace fsdplan::bert {
namespace {

using layer::child;

Value padded_position_ids(Eager& f, const Value& ids) {
    const Value mask = f.run("ne", {ids.shape(), DType::boolean}, {&ids});
    const Value counted = f.run("_to_copy", {ids.shape(), DType::int32}, {&mask});
    Value positions = f.run("cumsum", {ids.shape(), DType::int64}, {&counted});
    positions = op::to(f, std::move(positions), DType::int32);
    positions = f.run("add", {ids.shape(), DType::int32}, {&positions});
    positions = f.run("mul", {ids.shape(), DType::int32}, {&positions, &counted});
    positions = op::to(f, std::move(positions), DType::int64);
    return f.run("add", {ids.shape(), DType::int64}, {&positions});
}

Value embeddings(Eager& f, ModuleIndex m, const Value& ids, const Sizes& s) {
    return f.call(m, {&ids}, [&] {
        const Value positions =
            s.padded_positions ? padded_position_ids(f, ids) : f.outside({1, ids.size(1)}, DType::int64);
        const Value types = f.run("gather", {positions.shape(), DType::int64}, {&positions});
        const Value words = layer::input_embedding(f, child(f, m, "word_embeddings"), ids);
        const Value type_rows =
            layer::embedding(f, child(f, m, "token_type_embeddings"), f.view(types, ids.shape()));
        Value sum = op::add(f, words, type_rows);
        const Value position_rows = layer::embedding(f, child(f, m, "position_embeddings"), positions);
        sum = op::add(f, std::move(sum), position_rows);
        sum = layer::norm(f, child(f, m, "LayerNorm"), sum);
        return layer::dropout(f, child(f, m, "dropout"), sum, s.dropout);
    });
}

Value self_attention(Eager& f, ModuleIndex m, const Value& x, const Sizes& s) {
    return f.call(m, {&x}, [&] {
        const auto projected = [&](std::string_view name) {
            return attention::heads(f, layer::linear(f, child(f, m, name), x), s.heads, true);
        };
        const Value query = projected("query");
        const Value key = projected("key");
        const Value value = projected("value");
        return attention::sdpa(f, query, key, value, {}, false);
    });
}

Value output(Eager& f, ModuleIndex m, const Value& x, const Value& residual, const Sizes& s) {
    return f.call(m, {&x, &residual}, [&] {
        Value hidden = layer::linear(f, child(f, m, "dense"), x);
        hidden = layer::dropout(f, child(f, m, "dropout"), hidden, s.dropout);
        return layer::norm(f, child(f, m, "LayerNorm"), op::add(f, hidden, residual));
    });
}

Value encoder_layer(Eager& f, ModuleIndex m, const Value& x, const Sizes& s) {
    return f.call(m, {&x}, [&] {
        const ModuleIndex around = child(f, m, "attention");
        const Value attended = f.call(around, {&x}, [&] {
            const Value mixed = self_attention(f, child(f, around, "self"), x, s);
            return output(f, child(f, around, "output"), mixed, x, s);
        });
        const ModuleIndex inner = child(f, m, "intermediate");
        const Value active = f.call(inner, {&attended}, [&] {
            const Value wide = layer::linear(f, child(f, inner, "dense"), attended);
            return layer::activation(f, child(f, inner, "intermediate_act_fn"), wide, s.act);
        });
        return output(f, child(f, m, "output"), active, attended, s);
    });
}

Value pooled(Eager& f, ModuleIndex pooler, const Value& states) {
    return f.call(pooler, {&states}, [&] {
        const Value first = op::first_of_sequence(f, states);
        const Value dense = layer::linear(f, child(f, pooler, "dense"), first);
        return layer::activation(f, child(f, pooler, "activation"), dense, "tanh");
    });
}

}  // namespace

Value encoder(Eager& f, ModuleIndex model, const Value& ids, const Sizes& s) {
    return f.call(model, {&ids}, [&] {
        const Value embedded = embeddings(f, child(f, model, "embeddings"), ids, s);
        const ModuleIndex stack = child(f, model, "encoder");
        const Value states = f.call(stack, {&embedded}, [&] {
            Value hidden = embedded;
            for (const ModuleIndex m : f.tree().children(child(f, stack, "layer"))) {
                hidden = encoder_layer(f, m, hidden, s);
            }
            return hidden;
        });
        const std::optional<ModuleIndex> pooler = f.child(model, "pooler");
        return pooler ? pooled(f, *pooler, states) : states;
    });
}

Value prediction_head(Eager& f, ModuleIndex m, const Value& states, std::string_view act) {
    const ModuleIndex predictions = child(f, m, "predictions");
    const ModuleIndex transform = child(f, predictions, "transform");
    const auto transformed = [&] {
        Value hidden = layer::linear(f, child(f, transform, "dense"), states);
        hidden = layer::activation(f, child(f, transform, "transform_act_fn"), hidden, act);
        return layer::norm(f, child(f, transform, "LayerNorm"), hidden);
    };
    return f.call(m, {&states}, [&] {
        return f.call(predictions, {&states}, [&] {
            const Value hidden = f.call(transform, {&states}, transformed);
            return layer::linear(f, child(f, predictions, "decoder"), hidden);
        });
    });
}

Value language_head(Eager& f, ModuleIndex m, const Value& states) {
    return f.call(m, {&states}, [&] {
        Value hidden = layer::linear(f, child(f, m, "dense"), states);
        hidden = layer::activate(f, hidden, "gelu");
        hidden = layer::norm(f, child(f, m, "layer_norm"), hidden);
        return layer::linear(f, child(f, m, "decoder"), hidden);
    });
}

Value classification_head(Eager& f, ModuleIndex m, const Value& states, double dropout) {
    return f.call(m, {&states}, [&] {
        Value hidden = op::first_of_sequence(f, states);
        hidden = layer::dropout(f, child(f, m, "dropout"), hidden, dropout);
        hidden = layer::linear(f, child(f, m, "dense"), hidden);
        hidden = op::tanh(f, hidden);
        hidden = layer::dropout(f, child(f, m, "dropout"), hidden, dropout);
        return layer::linear(f, child(f, m, "out_proj"), hidden);
    });
}

}  // namespace fsdplan::bert
