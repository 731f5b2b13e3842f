#include "operators/elementwise.hpp"

#include <algorithm>

namespace fsdplan::op {
namespace {

/// Backward of one kernel for each operand that wants a gradient, from the last to the first.
void kernel_each(Eager& e, Gradients& g, std::string_view name, std::size_t first, std::size_t operands) {
    const Result like{g.of_output().shape(), g.of_output().dtype()};
    for (std::size_t i = first + operands; i-- > first;) {
        if (g.wanted(i)) {
            g.give(i, e.run(name, like, {&g.of_output(), &g.of_output()}));
        }
    }
}

}  // namespace

Shape broadcast(const Shape& a, const Shape& b) {
    Shape out(std::max(a.size(), b.size()), 1);
    const auto merge = [&](const Shape& from) {
        for (std::size_t i = 0; i < from.size(); ++i) {
            std::int64_t& size = out[out.size() - from.size() + i];
            size = size == 1 ? from[i] : size;
        }
    };
    merge(a);
    merge(b);
    return out;
}

DType promoted(const Value& a, const Value& b) {
    if (a.shape().empty() != b.shape().empty()) {
        return a.shape().empty() ? b.dtype() : a.dtype();
    }
    if (is_floating_point(a.dtype()) != is_floating_point(b.dtype())) {
        return is_floating_point(a.dtype()) ? a.dtype() : b.dtype();
    }
    return bits(a.dtype()) >= bits(b.dtype()) ? a.dtype() : b.dtype();
}

Value sub(Eager& f, Value a, Value b) {
    Value out = f.run("sub", {broadcast(a.shape(), b.shape()), promoted(a, b)}, {&a, &b});
    f.node({&out}, {&a, &b}, {}, [](Eager& e, Gradients& g) {
        if (g.wanted(1)) {
            g.give(1, e.run("neg", {g.of_output().shape(), g.of_output().dtype()}, {&g.of_output()}));
        }
        if (g.wanted(0)) {
            g.give(0, std::move(g.of_output()));
        }
    });
    return out;
}

Value div(Eager& f, Value a, Value b) {
    Value out = f.run("div", {broadcast(a.shape(), b.shape()), promoted(a, b)}, {&a, &b});
    Values saved{&b};
    if (b.requires_grad()) {
        saved.push_back(&a);
    }
    f.node({&out}, {&a, &b}, saved, [](Eager& e, Gradients& g) { kernel_each(e, g, "div", 0, 2); });
    return out;
}

Value larger(Eager& f, Value a, Value b, std::string_view name) {
    Value out = f.run(name, {broadcast(a.shape(), b.shape()), promoted(a, b)}, {&a, &b});
    f.node({&out}, {&a, &b}, {&b, &a}, [](Eager& e, Gradients& g) { kernel_each(e, g, "mul", 0, 2); });
    return out;
}

Value where(Eager& f, const Value& condition, Value a, Value b) {
    const Shape shape = broadcast(condition.shape(), broadcast(a.shape(), b.shape()));
    Value out = f.run("where", {shape, promoted(a, b)}, {&condition, &a, &b});
    f.node({&out}, {&condition, &a, &b}, {&condition},
           [](Eager& e, Gradients& g) { kernel_each(e, g, "where", 1, 2); });
    return out;
}

Value keeps_nothing(Eager& f, Value x, Shape shape, std::string_view name) {
    Value out = f.run(name, {std::move(shape), x.dtype()}, {&x});
    f.node({&out}, {&x}, {}, [name = std::string(name), from = x.shape()](Eager& e, Gradients& g) {
        g.give(0, e.run(name, {from, g.of_output().dtype()}, {&g.of_output()}));
    });
    return out;
}

Value extreme(Eager& f, Value x, Shape shape, std::string_view name) {
    Value out = f.run(name, {std::move(shape), x.dtype()}, {&x});
    f.node({&out}, {&x}, {&x, &out}, [from = x.shape()](Eager& e, Gradients& g) {
        g.give(0, e.run("mul", {from, g.of_output().dtype()}, {&g.of_output()}));
    });
    return out;
}

}  // namespace fsdplan::op
