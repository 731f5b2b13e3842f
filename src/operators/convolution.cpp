#include "operators/convolution.hpp"

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
    Value out = f.run("cat", {{a.size(0), a.size(1) + b.size(1), a.size(2)}, a.dtype()}, {&a, &b});
    f.node({&out}, {&a, &b}, {}, [a_shape = a.shape(), b_shape = b.shape()](Eager& e, Gradients& g) {
        g.give(0, e.view(g.of_output(), a_shape));
        g.give(1, e.view(g.of_output(), b_shape));
    });
    return out;
}

Value expand_batch(Eager& f, const Value& x, std::int64_t batch) {
    Value out = f.view(x, Shape{batch, x.size(1), x.size(2)});
    f.node({&out}, {&x}, {}, [](Eager&, Gradients& g) { g.give(0, std::move(g.of_output())); });
    return out;
}

}  // namespace fsdplan::op
