#include "operators/t5.hpp"

namespace fsdplan::t5 {
namespace {

using layer::child;

/// What the first block of a stack works out for the others too.
struct Biases {
    Value self;
    Value cross;
};

struct Around {
    const Sizes& sizes;
    Value states;  // of the encoder, in the decoder
    bool decoder() const { return bool(states); }
};

Values passed(Values arguments) {
    std::erase_if(arguments, [](const Value* argument) { return !*argument; });
    return arguments;
}

/// Like other models' RMS norm, but the input itself is scaled, not its copy in float32.
Value norm(Eager& f, ModuleIndex m, const Value& x) {
    return f.call(m, {&x}, [&] {
        const Value variance = op::mean_last(f, op::power(f, op::to(f, x, DType::float32)));
        Value hidden = op::mul(f, x, op::rsqrt(f, op::add_scalar(f, variance)));
        hidden = op::to(f, hidden, x.dtype());
        return op::mul(f, f.parameter(m, "weight"), hidden);
    });
}

/// The row of the table for each pair of positions.
Value buckets_of(Eager& f, const Value& relative, bool bidirectional) {
    const Result whole{relative.shape(), DType::int64};
    const Result real{relative.shape(), DType::float32};
    const Result truth{relative.shape(), DType::boolean};
    Value buckets;
    Value distance;
    if (bidirectional) {
        Value ahead = f.run("gt", truth, {&relative});
        ahead = f.run("_to_copy", whole, {&ahead});
        ahead = f.run("mul", whole, {&ahead});
        buckets = f.run("add", whole, {&ahead});
        ahead.reset();
        distance = f.run("abs", whole, {&relative});
    } else {
        Value zeros = f.run("zeros_like", whole, {});
        distance = f.run("minimum", whole, {&relative, &zeros});
        zeros.reset();
        distance = f.run("neg", whole, {&distance});
    }
    const Value is_small = f.run("lt", truth, {&distance});
    Value large = f.run("_to_copy", real, {&distance});
    for (const char* name : {"div", "log", "div", "mul"}) {
        large = f.run(name, real, {&large});
    }
    large = f.run("_to_copy", whole, {&large});
    large = f.run("add", whole, {&large});
    Value most = f.run("full_like", whole, {});
    large = f.run("minimum", whole, {&large, &most});
    most.reset();
    const Value chosen = f.run("where", whole, {&is_small, &distance, &large});
    if (!bidirectional) {
        return f.run("add", whole, {&chosen});
    }
    f.run_in_place("add_", {&buckets, &chosen});
    return buckets;
}

/// [1, heads, queries, keys], a view of what the table gives.
Value position_bias(Eager& f, ModuleIndex table, std::int64_t length, bool bidirectional) {
    const Result row{{length}, DType::int64};
    Value queries = f.run("arange", row, {});
    queries = f.run("add", row, {&queries});
    const Value keys = f.run("arange", row, {});
    const Value relative = f.run("sub", {{length, length}, DType::int64}, {&keys, &queries});
    const Value values = layer::embedding(f, table, buckets_of(f, relative, bidirectional));
    Value out = f.view(values, Shape{1, values.size(2), length, length});
    f.node({&out}, {&values}, {}, [shape = values.shape()](Eager& e, Gradients& g) {
        g.give(0, e.run("clone", {shape, g.of_output().dtype()}, {&g.of_output()}));
    });
    return out;
}

/// The bias with what a causal mask hides, [1, heads, queries, keys].
Value masked(Eager& f, const Value& bias) {
    const Value visible = f.run("ge", {{bias.size(2), bias.size(3)}, DType::boolean}, {});
    Value out = f.run("where", {bias.shape(), bias.dtype()}, {&visible, &bias});
    f.node({&out}, {&bias}, {&visible}, [](Eager& e, Gradients& g) {
        const Value& gradient = g.of_output();
        g.give(0, e.run("where", {gradient.shape(), gradient.dtype()}, {&gradient}));
    });
    return out;
}

/// Self-attention, or with `over` attention to the encoder's states.
Value attend(Eager& f, ModuleIndex m, const Value& x, const Value& over, Value& bias, const Around& around) {
    const Value& source = over ? over : x;
    return f.call(m, passed({&x, &over, &bias}), [&] {
        const std::int64_t heads = around.sizes.heads;
        const auto projected = [&](std::string_view name, const Value& of) {
            return attention::heads(f, layer::linear(f, child(f, m, name), of), heads, true);
        };
        const Value q = projected("q", x);
        const Value k = projected("k", source);
        const Value v = projected("v", source);
        if (!bias) {
            const std::optional<ModuleIndex> table = f.child(m, "relative_attention_bias");
            bias = table ? position_bias(f, *table, x.size(1), !around.decoder())
                         : f.run("zeros", {{1, heads, x.size(1), source.size(1)}, x.dtype()}, {});
        }
        Value added = bias;
        if (!over) {
            added = around.decoder() ? masked(f, bias) : bias;
            added = op::contiguous(f, std::move(added));
        }
        const Value mixed = attention::sdpa_biased(f, q, k, v, added);
        return layer::linear(f, child(f, m, "o"), mixed);
    });
}

Value attention_layer(Eager& f, ModuleIndex m, std::string_view name, const Value& x, const Value& over,
                      Value& bias, const Around& around) {
    return f.call(m, passed({&x, &over, &bias}), [&] {
        const Value normed = norm(f, child(f, m, "layer_norm"), x);
        const Value mixed = attend(f, child(f, m, name), normed, over, bias, around);
        return op::add(f, x, layer::dropout(f, child(f, m, "dropout"), mixed, around.sizes.dropout));
    });
}

Value dense(Eager& f, ModuleIndex m, const Value& x, const Sizes& s) {
    return f.call(m, {&x}, [&] {
        const auto active = [&](std::string_view name) {
            return layer::activation(f, child(f, m, "act"), layer::linear(f, child(f, m, name), x), s.act);
        };
        const bool gated = !f.child(m, "wi");
        Value first = active(gated ? "wi_0" : "wi");
        Value second = gated ? layer::linear(f, child(f, m, "wi_1"), x) : Value();
        Value hidden = gated ? op::mul(f, first, second) : std::move(first);
        hidden = layer::dropout(f, child(f, m, "dropout"), hidden, s.dropout);
        return layer::linear(f, child(f, m, "wo"), hidden);
    });
}

Value feed_forward(Eager& f, ModuleIndex m, const Value& x, const Sizes& s) {
    return f.call(m, {&x}, [&] {
        Value hidden = norm(f, child(f, m, "layer_norm"), x);
        hidden = dense(f, child(f, m, "DenseReluDense"), hidden, s);
        return op::add(f, x, layer::dropout(f, child(f, m, "dropout"), hidden, s.dropout));
    });
}

Value block(Eager& f, ModuleIndex m, const Value& x, Biases& biases, const Around& around) {
    return f.call(m, passed({&x, &biases.self, &around.states, &biases.cross}), [&] {
        const std::span<const ModuleIndex> layers = f.tree().children(child(f, m, "layer"));
        Value hidden = attention_layer(f, layers.front(), "SelfAttention", x, {}, biases.self, around);
        if (around.decoder()) {
            hidden =
                attention_layer(f, layers[1], "EncDecAttention", hidden, around.states, biases.cross, around);
        }
        return feed_forward(f, layers.back(), hidden, around.sizes);
    });
}

}  // namespace

Value stack(Eager& f, ModuleIndex m, const Value& ids, const Value& states, const Sizes& sizes) {
    return f.call(m, passed({&ids, &states}), [&] {
        const Around around{.sizes = sizes, .states = states};
        const auto dropped = [&](const Value& x) {
            return layer::dropout(f, child(f, m, "dropout"), x, sizes.dropout);
        };
        const Value embedded = layer::input_embedding(f, child(f, m, "embed_tokens"), ids);
        Biases biases;
        Value hidden = dropped(embedded);
        for (const ModuleIndex one : f.tree().children(child(f, m, "block"))) {
            hidden = block(f, one, hidden, biases, around);
        }
        hidden = norm(f, child(f, m, "final_layer_norm"), hidden);
        return dropped(hidden);
    });
}

}  // namespace fsdplan::t5
