#include "operators/indexing.hpp"

namespace fsdplan::op {

Value slice(Eager& f, const Value& x, Shape shape) {
    Value out = f.view(x, std::move(shape));
    f.node({&out}, {&x}, {}, [from = x.shape()](Eager& e, Gradients& g) {
        g.give(0, e.run("slice_backward", {from, g.of_output().dtype()}, {&g.of_output()}));
    });
    return out;
}

std::vector<Value> split(Eager& f, const Value& x, const std::vector<Shape>& shapes) {
    std::vector<Value> out;
    std::vector<Value*> outputs;
    for (const Shape& shape : shapes) {
        out.push_back(f.view(x, shape));
    }
    for (Value& part : out) {
        outputs.push_back(&part);
    }
    f.node(outputs, {&x}, {}, [from = x.shape(), parts = shapes.size()](Eager& e, Gradients& g) {
        Values reads;
        for (std::size_t i = 0; i < parts; ++i) {
            if (g.of_output(i)) {
                reads.push_back(&g.of_output(i));
            }
        }
        g.give(0, e.run("cat", {from, reads.front()->dtype()}, reads));
    });
    return out;
}

Value cat(Eager& f, const std::vector<Value>& parts, Shape shape) {
    Values inputs;
    std::vector<Shape> shapes;
    for (const Value& part : parts) {
        inputs.push_back(&part);
        shapes.push_back(part.shape());
    }
    Value out = f.run("cat", {std::move(shape), parts.front().dtype()}, inputs);
    f.node({&out}, inputs, {}, [shapes = std::move(shapes)](Eager& e, Gradients& g) {
        for (std::size_t i = 0; i < shapes.size(); ++i) {
            if (g.wanted(i)) {
                g.give(i, e.view(g.of_output(), shapes[i]));
            }
        }
    });
    return out;
}

Value expand(Eager& f, const Value& x, Shape shape) {
    Value out = f.view(x, std::move(shape));
    f.node({&out}, {&x}, {}, [](Eager&, Gradients& g) { g.give(0, std::move(g.of_output())); });
    return out;
}

Value index_select(Eager& f, const Value& x, const Value& index, Shape shape) {
    Value out = f.run("index_select", {std::move(shape), x.dtype()}, {&index});
    f.node({&out}, {&x}, {&index}, [from = x.shape()](Eager& e, Gradients& g) {
        g.give(0, e.run("index_add_", {from, g.of_output().dtype()}, {&g.of_output()}));
    });
    return out;
}

}  // namespace fsdplan::op
