#include <algorithm>

#include "model/onnx/step.hpp"
#include "operators/functional.hpp"
#include "operators/indexing.hpp"

// Operators that look rows up, put tensors together or make new ones.
namespace fsdplan::onnx {
namespace {

/// Several rows of one dimension, or one, which leaves the dimension out.
std::vector<Datum> gather(const Step& step) {
    const Datum& x = step.datum(0);
    const Shape& from = x.value.shape();
    const std::size_t dim = step.dimension(step.node.integer("axis", 0), from.size());
    Shape shape(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(dim));
    const Shape& index = step.shape(1);
    shape.insert(shape.end(), index.begin(), index.end());
    shape.insert(shape.end(), from.begin() + static_cast<std::ptrdiff_t>(dim) + 1, from.end());
    possible(shape);
    if (index.empty() && step.datum(1).is_constant) {
        Shape strides = x.strides;
        strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(dim));
        return result(op::slice(step.f, x.value, std::move(shape)), std::move(strides));
    }
    if (dim == 0 && from.size() == 2 && x.value.requires_grad()) {
        return result(op::embedding(step.f, step.value(1), x.value));
    }
    return result(op::index_select(step.f, x.value, step.value(1), std::move(shape)));
}

std::vector<Datum> gather_elements(const Step& step) {
    return result(op::index_select(step.f, step.value(0), step.value(1), step.shape(1)));
}

std::vector<Datum> gather_nd(const Step& step) {
    const Shape& from = step.shape(0);
    const Shape& index = step.shape(1);
    const std::int64_t batch = step.node.integer("batch_dims", 0);
    const std::int64_t skipped = index.empty() ? -1 : batch + index.back();
    if (batch < 0 || index.empty() || index.back() < 0 || skipped > static_cast<std::int64_t>(from.size())) {
        throw NotPlayable{"indexes more dimensions than there are"};
    }
    Shape shape(index.begin(), index.end() - 1);
    shape.insert(shape.end(), from.begin() + static_cast<std::ptrdiff_t>(skipped), from.end());
    return result(op::index_select(step.f, step.value(0), step.value(1), possible(std::move(shape))));
}

std::vector<Datum> concat(const Step& step) {
    std::vector<Value> parts;
    Shape shape = step.shape(0);
    const std::size_t dim = step.dimension(step.node.integer("axis", 0), shape.size());
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
        parts.push_back(step.value(i));
        Shape expected = step.shape(0);
        const Shape& part = parts.back().shape();
        if (part.size() != shape.size()) {
            throw NotPlayable{"joins tensors of several ranks"};
        }
        expected[dim] = part[dim];
        if (part != expected) {
            throw NotPlayable{"joins tensors whose other dimensions differ"};
        }
        shape[dim] += i == 0 ? 0 : part[dim];
        possible(shape);
    }
    return result(op::cat(step.f, parts, std::move(shape)));
}

std::vector<Datum> range(const Step& step) {
    const std::optional<Numbers> begin = step.numbers(0);
    const std::optional<Numbers> end = step.numbers(1);
    const std::optional<Numbers> stride = step.numbers(2);
    const bool counts =
        begin && end && stride && begin->size() == 1 && end->size() == 1 && stride->size() == 1;
    if (!counts || stride->front() < 1 || begin->front() < 0 || end->front() < begin->front()) {
        throw NotPlayable{"counts from or to what is not known"};
    }
    const Shape shape = possible({ceil_div(end->front() - begin->front(), stride->front())});
    return result(step.f.run("arange", {shape, DType::int64}, {}));
}

std::vector<Datum> constant_of_shape(const Step& step) {
    return result(step.f.run("full", {possible(step.numbers(0).value_or(Numbers{})), DType::float32}, {}));
}

std::vector<Datum> trilu(const Step& step) {
    const Value& x = step.value(0);
    return result(op::contiguous(step.f, x));
}

constexpr PlayEntry entries[] = {
    {"Gather", gather}, {"GatherElements", gather_elements},    {"GatherND", gather_nd}, {"Concat", concat},
    {"Range", range},   {"ConstantOfShape", constant_of_shape}, {"Trilu", trilu},
};

}  // namespace

std::span<const PlayEntry> indexing_plays() {
    return entries;
}

}  // namespace fsdplan::onnx
