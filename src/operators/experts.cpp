#include "operators/experts.hpp"

namespace fsdplan {
namespace {

using layer::child;

struct Routing {
    Value weights;  // [tokens, chosen], float32
    Value experts;  // [tokens, chosen]
};

Routing route(Eager& f, ModuleIndex m, const Value& x, std::int64_t chosen) {
    Routing out;
    const Value passed = f.call(m, {&x}, [&] {
        const Value logits = op::linear(f, x, f.parameter(m, "weight"));
        const Value shares = op::softmax(f, logits, DType::float32);
        const Shape shape{x.size(0), chosen};
        Value best = f.run("topk", {shape, DType::float32}, {&shares});
        out.experts = f.also({shape, DType::int64});
        f.node({&best}, {&shares}, {&out.experts}, [all = shares.shape()](Eager& e, Gradients& g) {
            g.give(0, e.run("scatter", {all, DType::float32}, {&g.of_output()}));
        });
        // The chosen shares add up to one.
        Value sum = f.run("sum", {{x.size(0), 1}, DType::float32}, {&best});
        out.weights = f.run("div", {shape, DType::float32}, {&best, &sum});
        f.node({&out.weights}, {&best}, {&sum, &best}, [shape](Eager& e, Gradients& g) {
            g.give(0, e.run("div", {shape, DType::float32}, {&g.of_output()}));
        });
        return out.weights;
    });
    out.weights = f.from_last_leaf(out.weights, out.weights.shape());
    return out;
}

/// Rows of `x` in another order, or several times.
Value gathered(Eager& f, Value x, const Value& rows, Shape shape) {
    Value out = f.run("index", {std::move(shape), x.dtype()}, {&x});
    f.node({&out}, {&x}, {&rows}, [from = x.shape(), dtype = x.dtype()](Eager& e, Gradients& g) {
        Value all = e.run("new_zeros", {from, dtype}, {});
        e.run_in_place("_index_put_impl_", {&all, &g.of_output()});
        g.give(0, std::move(all));
    });
    return out;
}

/// Each row times the weight of its expert; weight [experts, out, in] or its transpose.
Value grouped(Eager& f, Value x, const Value& weight, std::int64_t width) {
    const Shape shape = x.shape();
    // As one product: how the visits spread over the experts is not known.
    const KernelShape forward{.m = shape[0], .n = width, .k = shape[1], .dtype = x.dtype()};
    Value out = f.run("_grouped_mm", {{shape[0], width}, x.dtype()}, {&x, &weight}, forward);
    Values saved;
    if (weight.requires_grad()) {
        saved.push_back(&x);
    }
    f.node({&out}, {&x, &weight}, saved,
           [shape, weight_shape = weight.shape(), dtype = x.dtype(), forward](Eager& e, Gradients& g) {
               Value& gradient = g.of_output();
               if (g.wanted(1)) {
                   g.give(1, e.run("_grouped_mm", {weight_shape, dtype}, {&gradient},
                                   {.m = forward.k, .n = forward.n, .k = forward.m, .dtype = dtype}));
               }
               if (g.wanted(0)) {
                   g.give(0, e.run("_grouped_mm", {shape, dtype}, {&gradient},
                                   {.m = forward.m, .n = forward.k, .k = forward.n, .dtype = dtype}));
               }
           });
    return out;
}

/// The visits of each token added up, [tokens * chosen, width] to [tokens, width].
Value added_up(Eager& f, Value x, std::int64_t tokens) {
    Value out = f.run("sum", {{tokens, x.size(1)}, x.dtype()}, {&x});
    f.node({&out}, {&x}, {}, [shape = x.shape()](Eager& e, Gradients& g) {
        g.give(0, e.run("clone", {shape, g.of_output().dtype()}, {&g.of_output()}));
    });
    return out;
}

Value visit(Eager& f, ModuleIndex m, const Value& x, const Routing& routing, std::int64_t chosen,
            std::string_view act) {
    return f.call(m, {&x, &routing.experts, &routing.weights}, [&] {
        const std::int64_t tokens = x.size(0);
        const std::int64_t visits = tokens * chosen;
        const std::int64_t width = x.size(1);
        const Value sorted = f.run("sort", {{visits}, DType::int64}, {&routing.experts});
        const Value order = f.also({{visits}, DType::int64});
        const Value rows = f.run("floor_divide", {{visits}, DType::int64}, {&order});
        const Value selected = gathered(f, x, rows, Shape{visits, width});
        const Value weights = gathered(f, f.view(routing.weights, Shape{visits}), order, Shape{visits});
        const Value up = f.parameter(m, "gate_up_proj");
        // One variable, as in transformers: what it held before goes when it is bound anew.
        Value out = grouped(f, selected, up, up.size(1));
        std::vector<Value> halves = op::split_last(f, out, 2);
        Value active = layer::activation(f, child(f, m, "act_fn"), halves[0], act);
        out = op::mul(f, std::move(active), halves[1]);
        halves.clear();
        out = grouped(f, out, f.parameter(m, "down_proj"), width);
        Value weighted = op::mul(f, out, f.view(weights, Shape{visits, 1}));
        const Value back = f.run("index_put", {{visits}, DType::int64}, {&order});
        weighted = gathered(f, weighted, back, Shape{visits, width});
        return op::to(f, added_up(f, weighted, tokens), x.dtype());
    });
}

}  // namespace

Value sparse_mlp(Eager& f, ModuleIndex m, const Value& x, std::int64_t experts_per_token,
                 std::string_view act) {
    return f.call(m, {&x}, [&] {
        const Value flat = f.view(x, Shape{x.size(0) * x.size(1), x.size(2)});
        const Routing routing = route(f, child(f, m, "gate"), flat, experts_per_token);
        const Value out = visit(f, child(f, m, "experts"), flat, routing, experts_per_token, act);
        return f.view(out, x.shape());
    });
}

}  // namespace fsdplan
