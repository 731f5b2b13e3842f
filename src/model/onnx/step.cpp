#include "model/onnx/step.hpp"

#include <algorithm>
#include <numeric>

#include "operators/elementwise.hpp"

namespace fsdplan::onnx {

const Datum& Step::datum(std::size_t i) const {
    if (!has(i)) {
        throw NotPlayable{"lacks input " + std::to_string(i)};
    }
    return *inputs[i];
}

std::optional<Numbers> Step::numbers(std::size_t i, std::string_view attribute) const {
    if (has(i)) {
        if (!inputs[i]->numbers) {
            throw NotPlayable{"takes input " + std::to_string(i) + " from what the model computes"};
        }
        return inputs[i]->numbers;
    }
    const auto found = node.attributes.find(attribute);
    return found == node.attributes.end() ? std::nullopt : std::optional(found->second.ints);
}

std::size_t Step::dimension(std::int64_t axis, std::size_t rank) const {
    const auto dims = static_cast<std::int64_t>(rank);
    if (axis < -dims || axis >= dims) {
        throw NotPlayable{"names dimension " + std::to_string(axis) + " of " + std::to_string(rank)};
    }
    return static_cast<std::size_t>(axis < 0 ? axis + dims : axis);
}

std::vector<Datum> result(Value value) {
    Shape strides = contiguous_strides(value.shape());
    return result(std::move(value), std::move(strides));
}

std::vector<Datum> result(Value value, Shape strides) {
    std::vector<Datum> out(1);
    out[0].value = std::move(value);
    out[0].strides = std::move(strides);
    return out;
}

Shape possible(Shape shape) {
    std::int64_t numel = 1;
    for (const std::int64_t size : shape) {
        if (size < 0 || (size > 0 && numel > largest_total / size)) {
            throw NotPlayable{"has a result that cannot exist"};
        }
        numel *= std::max<std::int64_t>(size, 1);
    }
    return shape;
}

Shape broadcast_of(const Shape& a, const Shape& b) {
    for (std::size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
        const std::int64_t of_a = a[a.size() - i];
        const std::int64_t of_b = b[b.size() - i];
        if (of_a != of_b && of_a != 1 && of_b != 1) {
            throw NotPlayable{"has operands of sizes " + std::to_string(of_a) + " and " +
                              std::to_string(of_b)};
        }
    }
    return possible(op::broadcast(a, b));
}

Shape contiguous_strides(const Shape& shape) {
    Shape out(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;) {
        out[i - 1] = out[i] * std::max<std::int64_t>(shape[i], 1);
    }
    return out;
}

// computeStride in aten/src/ATen/TensorUtils.cpp: dimensions of the new shape must lie within runs of old
// ones that follow each other in memory.
std::optional<Shape> strides_of_view(const Shape& shape, const Shape& strides, const Shape& wanted) {
    if (numel_of(shape) == 0) {
        return contiguous_strides(wanted);
    }
    Shape out(wanted.size(), 1);
    std::size_t next = wanted.size();
    std::int64_t stride = strides.empty() ? 1 : strides.back();
    std::int64_t run = 1;    // elements of the old dimensions that follow each other
    std::int64_t taken = 1;  // … and of the new ones in them
    for (std::size_t i = shape.size(); i-- > 0;) {
        run *= shape[i];
        const bool ends = i == 0 || (shape[i - 1] != 1 && strides[i - 1] != run * stride);
        if (!ends) {
            continue;
        }
        while (next > 0 && (taken < run || wanted[next - 1] == 1)) {
            out[--next] = taken * stride;
            taken *= wanted[next];
        }
        if (taken != run) {
            return std::nullopt;
        }
        if (i > 0) {
            stride = strides[i - 1];
            run = taken = 1;
        }
    }
    return next == 0 ? std::optional(out) : std::nullopt;
}

namespace {

/// Whether the elements fill their memory once each.
bool has_no_gaps(const Shape& shape, const Shape& strides) {
    std::vector<std::size_t> order(shape.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
    std::int64_t expected = 1;
    for (const std::size_t dim : order) {
        if (shape[dim] != 1) {
            if (strides[dim] != expected) {
                return false;
            }
            expected *= shape[dim];
        }
    }
    return true;
}

}  // namespace

Shape strides_like(const Step& step, const Shape& shape) {
    for (const Datum* input : step.inputs) {
        if (input != nullptr && !input->is_constant && input->value.shape() == shape) {
            return has_no_gaps(shape, input->strides) ? input->strides : contiguous_strides(shape);
        }
    }
    return contiguous_strides(shape);
}

}  // namespace fsdplan::onnx
