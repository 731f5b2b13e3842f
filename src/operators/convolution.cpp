#include "operators/convolution.hpp"

#include "operators/indexing.hpp"

namespace fsdplan::op {

Value patch_convolution(Eager& f, const Value& x, const Value& weight, const Value& bias) {
    const std::int64_t patches = (x.size(2) / weight.size(2)) * (x.size(3) / weight.size(3));
    const Shape shape{x.size(0), weight.size(0), patches};
    const std::int64_t positions = x.size(0) * patches;
    const std::int64_t inner = weight.numel() / weight.size(0);
    const KernelShape forward{.m = positions, .n = weight.size(0), .k = inner, .dtype = weight.dtype()};
    const Value out = f.run("convolution", {shape, weight.dtype()}, {&x, &weight, &bias}, forward);
    Value rows = f.view(out, Shape{shape[0], patches, shape[1]});
    f.node({&rows}, {&x, &weight, &bias}, {&x},
           [shape, weight_shape = weight.shape(), dtype = weight.dtype(), forward](Eager& e, Gradients& g) {
               const Value gradient = e.run("clone", {shape, dtype}, {&g.of_output()});
               if (g.wanted(2)) {
                   g.give(2, e.run("sum", {{shape[1]}, dtype}, {&gradient}));
               }
               if (g.wanted(1)) {
                   g.give(1, e.run("convolution_backward", {weight_shape, dtype}, {&gradient},
                                   {.m = forward.n, .n = forward.k, .k = forward.m, .dtype = dtype}));
               }
           });
    return rows;
}

Value cat_rows(Eager& f, const Value& a, const Value& b) {
    return cat(f, {a, b}, {a.size(0), a.size(1) + b.size(1), a.size(2)});
}

Value expand_batch(Eager& f, const Value& x, std::int64_t batch) {
    return expand(f, x, {batch, x.size(1), x.size(2)});
}

Value convolution(Eager& f, const Value& x, const Value& weight, const Value& bias, Shape shape) {
    const std::int64_t flops = 2 * numel_of(shape) * (weight.numel() / weight.size(0));
    Values inputs{&x, &weight};
    if (bias) {
        inputs.push_back(&bias);
    }
    Value out = f.run("convolution", {std::move(shape), weight.dtype()}, inputs, flops);
    Values saved{&weight};
    if (weight.requires_grad()) {
        saved.push_back(&x);
    }
    f.node(
        {&out}, inputs, saved,
        [from = x.shape(), of_weight = weight.shape(), flops, has_bias = bool(bias)](Eager& e, Gradients& g) {
            const Value& gradient = g.of_output();
            const DType dtype = gradient.dtype();
            if (g.wanted(0)) {
                g.give(0, e.run("convolution_backward", {from, dtype}, {&gradient}, flops));
            }
            if (g.wanted(1)) {
                g.give(1, e.run("convolution_backward", {of_weight, dtype}, {&gradient}, flops));
            }
            if (has_bias && g.wanted(2)) {
                g.give(2, e.run("sum", {{of_weight[0]}, dtype}, {&gradient}));
            }
        });
    return out;
}

Value batch_norm(Eager& f, Value x, const Value& weight, const Value& bias) {
    Value out = f.run("native_batch_norm", {x.shape(), x.dtype()}, {&x});
    const Result per_channel{{x.size(1)}, DType::float32};
    Value mean = f.also(per_channel);
    Value inverse = f.also(per_channel);
    f.node({&out}, {&x, &weight, &bias}, {&x, &mean, &inverse},
           [shape = x.shape(), dtype = x.dtype(), per_channel](Eager& e, Gradients& g) {
               const Value& gradient = g.of_output();
               g.give(0, e.run("native_batch_norm_backward", {shape, dtype}, {&gradient, &gradient}));
               g.give(1, e.also(per_channel));
               g.give(2, e.also(per_channel));
           });
    return out;
}

Value max_pool(Eager& f, Value x, Shape shape) {
    Value out = f.run("max_pool2d_with_indices", {shape, x.dtype()}, {&x});
    const Value indices = f.also({std::move(shape), DType::int64});
    f.node({&out}, {&x}, {&x, &indices}, [from = x.shape()](Eager& e, Gradients& g) {
        g.give(0, e.run("max_pool2d_with_indices_backward", {from, g.of_output().dtype()}, {&g.of_output()}));
    });
    return out;
}

Value average_pool(Eager& f, Value x, Shape shape) {
    Value out = f.run("avg_pool2d", {std::move(shape), x.dtype()}, {&x});
    f.node({&out}, {&x}, {&x}, [from = x.shape()](Eager& e, Gradients& g) {
        g.give(0, e.run("avg_pool2d_backward", {from, g.of_output().dtype()}, {&g.of_output()}));
    });
    return out;
}

}  // namespace fsdplan::op
