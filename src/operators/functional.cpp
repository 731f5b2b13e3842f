#include "operators/functional.hpp"

#include "operators/elementwise.hpp"
#include "operators/indexing.hpp"

namespace fsdplan::op {
namespace {

Shape with_last(const Shape& shape, std::int64_t last) {
    Shape out = shape;
    out.back() = last;
    return out;
}

/// Backward that hands the gradient through.
void pass_on(Eager&, Gradients& g) {
    g.give(0, std::move(g.of_output()));
}

/// Backward that is one kernel over the gradient, and over as much again where it reads something that was
/// kept.
Backward one_kernel(std::string_view name, bool reads_kept) {
    return [name = std::string(name), reads_kept](Eager& e, Gradients& g) {
        const Value& gradient = g.of_output();
        Values reads{&gradient};
        if (reads_kept) {
            reads.push_back(&gradient);
        }
        g.give(0, e.run(name, {gradient.shape(), gradient.dtype()}, reads));
    };
}

/// `transposed`: the weight is [in, out], not seen through a transposed view.
Value product(Eager& f, Value x, const Value& weight, const Value& bias, bool transposed) {
    const std::int64_t in = x.size(-1);
    const std::int64_t out_width = weight.size(transposed ? 1 : 0);
    const std::int64_t rows = x.numel() / in;
    const KernelShape forward{.m = rows, .n = out_width, .k = in, .dtype = weight.dtype()};
    Values reads{&x, &weight};
    if (bias) {
        reads.push_back(&bias);
    }
    const Shape shape = x.shape();
    Value out = f.run(bias ? "addmm" : "mm", {with_last(shape, out_width), weight.dtype()}, reads, forward);
    Values saved;
    if (weight.requires_grad()) {
        saved.push_back(&x);
    }
    f.node({&out}, reads, saved,
           [shape, weight_shape = weight.shape(), dtype = weight.dtype(), forward, has_bias = bool(bias),
            transposed](Eager& e, Gradients& g) {
               Value& gradient = g.of_output();
               const auto of_input = [&] {
                   Value of = e.run("mm", {shape, dtype}, {&gradient},
                                    {.m = forward.m, .n = forward.k, .k = forward.n, .dtype = dtype});
                   g.give(0, shape.size() > 2 ? e.view(of, shape) : std::move(of));
               };
               const auto of_weight = [&] {
                   Value of = e.run("mm", {weight_shape, dtype}, {&gradient},
                                    {.m = forward.n, .n = forward.k, .k = forward.m, .dtype = dtype});
                   g.give(1, transposed ? std::move(of) : e.view(of, weight_shape));
               };
               // mm works out the gradient of its second operand first, addmm that of its first.
               if (has_bias && g.wanted(0)) {
                   of_input();
               }
               if (g.wanted(1)) {
                   of_weight();
               }
               if (!has_bias && g.wanted(0)) {
                   of_input();
               }
               if (has_bias && g.wanted(2)) {
                   g.give(2, gradient);  // autograd sums it to the bias's shape
               }
           });
    return out;
}

}  // namespace

Value linear(Eager& f, Value x, const Value& weight, const Value& bias) {
    return product(f, std::move(x), weight, bias, false);
}

Value linear_transposed(Eager& f, Value x, const Value& weight, const Value& bias) {
    return product(f, std::move(x), weight, bias, true);
}

Value embedding(Eager& f, const Value& ids, const Value& weight) {
    Shape shape = ids.shape();
    shape.push_back(weight.size(1));
    Value out = f.run("embedding", {shape, weight.dtype()}, {&ids});
    f.node({&out}, {&weight}, {&ids},
           [weight_shape = weight.shape(), dtype = weight.dtype()](Eager& e, Gradients& g) {
               g.give(0, e.run("embedding_dense_backward", {weight_shape, dtype}, {&g.of_output()}));
           });
    return out;
}

Value to(Eager& f, Value x, DType dtype) {
    if (x.dtype() == dtype) {
        return x;
    }
    Value out = f.run("_to_copy", {x.shape(), dtype}, {&x});
    // Whoever gets the gradient casts it.
    f.node({&out}, {&x}, {}, pass_on);
    return out;
}

Value contiguous(Eager& f, Value x) {
    Value out = f.run("clone", {x.shape(), x.dtype()}, {&x});
    f.node({&out}, {&x}, {}, pass_on);
    return out;
}

Value add(Eager& f, Value a, Value b) {
    Value out = f.run("add", {broadcast(a.shape(), b.shape()), promoted(a, b)}, {&a, &b});
    f.node({&out}, {&a, &b}, {}, [](Eager&, Gradients& g) {
        Value gradient = std::move(g.of_output());
        if (g.wanted(1)) {
            g.give(1, gradient);
        }
        if (g.wanted(0)) {
            g.give(0, std::move(gradient));
        }
    });
    return out;
}

Value mul(Eager& f, Value a, Value b) {
    Value out = f.run("mul", {broadcast(a.shape(), b.shape()), promoted(a, b)}, {&a, &b});
    Values saved;
    if (a.requires_grad()) {
        saved.push_back(&b);
    }
    if (b.requires_grad()) {
        saved.push_back(&a);
    }
    f.node({&out}, {&a, &b}, saved, [](Eager& e, Gradients& g) {
        const Value& gradient = g.of_output();
        const auto product = [&](std::size_t input) {
            return g.wanted(input)
                       ? e.run("mul", {gradient.shape(), gradient.dtype()}, {&gradient, &gradient})
                       : Value();
        };
        // Worked out from the last argument on, handed over from the first.
        Value of_b = product(1);
        g.give(0, product(0));
        g.give(1, std::move(of_b));
    });
    return out;
}

Value mul_scalar(Eager& f, Value x) {
    Value out = f.run("mul", {x.shape(), x.dtype()}, {&x});
    f.node({&out}, {&x}, {}, one_kernel("mul", false));
    return out;
}

Value add_scalar(Eager& f, Value x) {
    Value out = f.run("add", {x.shape(), x.dtype()}, {&x});
    f.node({&out}, {&x}, {}, pass_on);
    return out;
}

Value neg(Eager& f, Value x) {
    Value out = f.run("neg", {x.shape(), x.dtype()}, {&x});
    f.node({&out}, {&x}, {}, one_kernel("neg", false));
    return out;
}

Value power(Eager& f, Value x) {
    Value out = f.run("pow", {x.shape(), x.dtype()}, {&x});
    f.node({&out}, {&x}, {&x}, [](Eager& e, Gradients& g) {
        Value& gradient = g.of_output();
        const Result like{gradient.shape(), gradient.dtype()};
        const Value lower = e.run("pow", like, {&gradient});
        const Value scaled = e.run("mul", like, {&lower});  // one C++ expression: all live to its end
        g.give(0, e.run("mul", like, {&gradient, &scaled}));
    });
    return out;
}

Value mean_last(Eager& f, Value x) {
    Value out = f.run("mean", {with_last(x.shape(), 1), x.dtype()}, {&x});
    f.node({&out}, {&x}, {}, [shape = x.shape()](Eager& e, Gradients& g) {
        g.give(0, e.run("div", {shape, g.of_output().dtype()}, {&g.of_output()}));
    });
    return out;
}

Value rsqrt(Eager& f, Value x) {
    Value out = f.run("rsqrt", {x.shape(), x.dtype()}, {&x});
    f.node({&out}, {&x}, {&out}, [](Eager& e, Gradients& g) {
        Value& gradient = g.of_output();
        const Result like{gradient.shape(), gradient.dtype()};
        Value cube = e.run("pow", like, {&gradient});
        Value half = e.run("mul", like, {&gradient});
        g.give(0, e.run("mul", like, {&half, &cube}));
    });
    return out;
}

Value activation_by_result(Eager& f, Value x, std::string_view name) {
    Value out = f.run(name, {x.shape(), x.dtype()}, {&x});
    f.node({&out}, {&x}, {&out}, one_kernel(std::string(name) + "_backward", true));
    return out;
}

Value tanh(Eager& f, Value x) {
    return activation_by_result(f, std::move(x), "tanh");
}

Value soft_cap(Eager& f, Value x) {
    x = mul_scalar(f, std::move(x));
    x = tanh(f, std::move(x));
    return mul_scalar(f, std::move(x));
}

Value activation(Eager& f, Value x, std::string_view name) {
    Value out = f.run(name, {x.shape(), x.dtype()}, {&x});
    f.node({&out}, {&x}, {&x}, one_kernel(std::string(name) + "_backward", true));
    return out;
}

Value narrow_last(Eager& f, const Value& x, std::int64_t size) {
    return slice(f, x, with_last(x.shape(), size));
}

std::vector<Value> split_last(Eager& f, const Value& x, std::size_t parts) {
    const std::int64_t size = x.size(-1) / static_cast<std::int64_t>(parts);
    return split(f, x, std::vector<Shape>(parts, with_last(x.shape(), size)));
}

std::vector<Value> chunk_sequence(Eager& f, const Value& x, std::int64_t parts) {
    const std::int64_t size = ceil_div(x.size(1), parts);
    std::vector<Shape> shapes;
    for (std::int64_t begin = 0; begin < x.size(1); begin += size) {
        shapes.push_back({x.size(0), std::min(size, x.size(1) - begin), x.size(2)});
    }
    return split(f, x, shapes);
}

Value cat_last(Eager& f, Value a, Value b) {
    Shape shape = with_last(a.shape(), a.size(-1) + b.size(-1));
    return cat(f, {std::move(a), std::move(b)}, std::move(shape));
}

Value reshape(Eager& f, const Value& x, Shape shape) {
    Value out = f.view(x, std::move(shape));
    f.node({&out}, {&x}, {},
           [from = x.shape()](Eager& e, Gradients& g) { g.give(0, e.view(g.of_output(), from)); });
    return out;
}

Value first_of_sequence(Eager& f, const Value& x) {
    Value out = f.view(x, Shape{x.size(0), x.size(2)});
    f.node({&out}, {&x}, {}, [shape = x.shape()](Eager& e, Gradients& g) {
        g.give(0, e.run("select_backward", {shape, g.of_output().dtype()}, {&g.of_output()}));
    });
    return out;
}

Value layer_norm(Eager& f, Value x, const Value& weight, const Value& bias) {
    Value out = f.run("native_layer_norm", {x.shape(), x.dtype()}, {&x});
    // Statistics are float32 whatever the input is.
    Value mean = f.also({with_last(x.shape(), 1), DType::float32});
    Value rstd = f.also({with_last(x.shape(), 1), DType::float32});
    Values inputs{&x};
    if (weight) {
        inputs.push_back(&weight);
    }
    if (bias) {
        inputs.push_back(&bias);
    }
    f.node({&out}, inputs, {&x, &mean, &rstd},
           [shape = x.shape(), dtype = x.dtype(), parameters = inputs.size() - 1](Eager& e, Gradients& g) {
               Value& gradient = g.of_output();
               if (g.wanted(0)) {
                   g.give(0, e.run("native_layer_norm_backward", {shape, dtype}, {&gradient, &gradient}));
               }
               for (std::size_t i = 1; i <= parameters; ++i) {
                   if (g.wanted(i)) {
                       g.give(i, e.run("sum", {{shape.back()}, dtype}, {&gradient}));
                   }
               }
           });
    return out;
}

Value dropout(Eager& f, Value x, double p) {
    if (p == 0.0) {
        return x;
    }
    const Value mask = f.also({x.shape(), DType::boolean});
    Value out = f.run("native_dropout", {x.shape(), x.dtype()}, {&x});
    f.node({&out}, {&x}, {&mask}, one_kernel("native_dropout_backward", true));
    return out;
}

Value softmax(Eager& f, Value x, DType dtype) {
    x = to(f, std::move(x), dtype);
    Value out = f.run("_softmax", {x.shape(), dtype}, {&x});
    f.node({&out}, {&x}, {&out}, one_kernel("_softmax_backward_data", true));
    return out;
}

Value safe_softmax(Eager& f, Value x) {
    const Value scores = x;
    Value out = softmax(f, std::move(x), scores.dtype());
    const Value empty = f.run("eq", {scores.shape(), DType::boolean}, {&scores});
    const Value rows = f.run("all", {with_last(scores.shape(), 1), DType::boolean}, {&empty});
    f.run_in_place("masked_fill_", {&out, &out});
    return out;
}

Value matmul(Eager& f, Value a, Value b, Shape shape) {
    const std::int64_t rows = a.size(-2);
    const KernelShape forward{.m = rows,
                              .n = shape.back(),
                              .k = a.size(-1),
                              .batch = a.numel() / (rows * a.size(-1)),
                              .dtype = a.dtype()};
    Value out = f.run("bmm", {std::move(shape), a.dtype()}, {&a, &b}, forward);
    Values saved;
    if (a.requires_grad()) {
        saved.push_back(&b);
    }
    if (b.requires_grad()) {
        saved.push_back(&a);
    }
    f.node({&out}, {&a, &b}, saved,
           [a_shape = a.shape(), b_shape = b.shape(), dtype = a.dtype(), forward](Eager& e, Gradients& g) {
               Value& gradient = g.of_output();
               if (g.wanted(1)) {
                   KernelShape of_b = forward;
                   std::swap(of_b.m, of_b.k);
                   g.give(1, e.run("bmm", {b_shape, dtype}, {&gradient}, of_b));
               }
               if (g.wanted(0)) {
                   KernelShape of_a = forward;
                   std::swap(of_a.n, of_a.k);
                   g.give(0, e.run("bmm", {a_shape, dtype}, {&gradient}, of_a));
               }
           });
    return out;
}

Value cross_entropy(Eager& f, Value logits, const Value& target) {
    const Result like{logits.shape(), logits.dtype()};
    Value logs = f.run("_log_softmax", like, {&logits});
    f.node({&logs}, {&logits}, {&logs}, one_kernel("_log_softmax_backward_data", true));
    const Value chosen = f.view(logs, Shape{logs.size(0)});  // one of each row is read
    Value loss = f.run("nll_loss_forward", {{}, logits.dtype()}, {&chosen});
    const Value total = f.also({{}, logits.dtype()});
    f.node({&loss}, {&logs}, {&logs, &target, &total},
           [like](Eager& e, Gradients& g) { g.give(0, e.run("nll_loss_backward", like, {})); });
    return loss;
}

}  // namespace fsdplan::op
