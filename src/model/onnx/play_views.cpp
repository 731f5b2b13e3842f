#include <algorithm>

#include "model/onnx/step.hpp"
#include "operators/functional.hpp"
#include "operators/indexing.hpp"

// Operators that give memory another shape and, as torch's views, cost nothing.
namespace fsdplan::onnx {
namespace {

constexpr std::int64_t most_parts = 1024;

std::size_t index(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

/// x as `shape`: a view, or a copy where torch needs one.
std::vector<Datum> reshaped(const Step& step, Shape shape) {
    const Datum& x = step.datum(0);
    if (const std::optional<Shape> strides = strides_of_view(x.value.shape(), x.strides, shape)) {
        return result(op::reshape(step.f, x.value, std::move(shape)), *strides);
    }
    return result(op::reshape(step.f, op::contiguous(step.f, x.value), std::move(shape)));
}

std::vector<Datum> reshape(const Step& step) {
    const Shape& from = step.shape(0);
    Shape shape = step.numbers(1, "shape").value_or(Numbers{});
    std::int64_t rest = step.value(0).numel();
    std::int64_t* open = nullptr;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] == 0 && step.node.integer("allowzero", 0) == 0 && i < from.size()) {
            shape[i] = from[i];
        }
        if (shape[i] == -1) {
            open = &shape[i];
        } else if (shape[i] <= 0 || rest % shape[i] != 0) {
            throw NotPlayable{"gives a shape that its input does not fill"};
        } else {
            rest /= shape[i];
        }
    }
    if (open != nullptr) {
        *open = rest;
    }
    if (numel_of(possible(shape)) != step.value(0).numel()) {
        throw NotPlayable{"gives a shape that its input does not fill"};
    }
    return reshaped(step, std::move(shape));
}

std::vector<Datum> flatten(const Step& step) {
    const Shape& from = step.shape(0);
    const std::int64_t axis = step.node.integer("axis", 1);
    const std::size_t rows =
        axis == static_cast<std::int64_t>(from.size()) ? from.size() : step.dimension(axis, from.size());
    Shape shape{1, 1};
    for (std::size_t i = 0; i < from.size(); ++i) {
        shape[i < rows ? 0 : 1] *= from[i];
    }
    return reshaped(step, std::move(shape));
}

std::vector<Datum> transpose(const Step& step) {
    const Datum& x = step.datum(0);
    const std::size_t rank = x.value.shape().size();
    std::vector<std::int64_t> order = step.node.integers("perm");
    if (order.empty()) {
        for (std::size_t i = rank; i-- > 0;) {
            order.push_back(static_cast<std::int64_t>(i));
        }
    }
    std::vector<char> seen(rank, 0);
    Shape shape;
    Shape strides;
    for (const std::int64_t axis : order) {
        const std::size_t dim = step.dimension(axis, rank);
        seen[dim] = 1;
        shape.push_back(x.value.shape()[dim]);
        strides.push_back(x.strides[dim]);
    }
    if (order.size() != rank || std::ranges::find(seen, 0) != seen.end()) {
        throw NotPlayable{"does not name each dimension once"};
    }
    return result(op::reshape(step.f, x.value, std::move(shape)), std::move(strides));
}

std::vector<Datum> unsqueeze(const Step& step) {
    Shape shape = step.shape(0);
    const Numbers axes = step.numbers(1, "axes").value_or(Numbers{});
    const std::size_t rank = shape.size() + axes.size();
    std::vector<std::size_t> places;
    for (const std::int64_t axis : axes) {
        places.push_back(step.dimension(axis, rank));
    }
    std::ranges::sort(places);
    for (const std::size_t place : places) {
        shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(std::min(place, shape.size())), 1);
    }
    return reshaped(step, std::move(shape));
}

std::vector<Datum> squeeze(const Step& step) {
    const Shape& from = step.shape(0);
    const std::optional<Numbers> axes = step.numbers(1, "axes");
    Shape shape;
    for (std::size_t i = 0; i < from.size(); ++i) {
        const bool named = !axes || std::ranges::any_of(*axes, [&](std::int64_t axis) {
            return step.dimension(axis, from.size()) == i;
        });
        if (from[i] != 1 || !named) {
            shape.push_back(from[i]);
        }
    }
    return reshaped(step, std::move(shape));
}

std::vector<Datum> expand(const Step& step) {
    const Datum& x = step.datum(0);
    const Shape shape = broadcast_of(x.value.shape(), possible(step.numbers(1).value_or(Numbers{})));
    Shape strides(shape.size(), 0);
    const std::size_t added = shape.size() - x.value.shape().size();
    for (std::size_t i = added; i < shape.size(); ++i) {
        strides[i] = x.value.shape()[i - added] == shape[i] ? x.strides[i - added] : 0;
    }
    return result(op::expand(step.f, x.value, shape), strides);
}

std::vector<Datum> slice(const Step& step) {
    const Datum& x = step.datum(0);
    Shape shape = x.value.shape();
    Shape strides = x.strides;
    const Numbers begins = step.numbers(1, "starts").value_or(Numbers{});
    const Numbers ends = step.numbers(2, "ends").value_or(Numbers{});
    const std::optional<Numbers> axes = step.numbers(3, "axes");
    const std::optional<Numbers> every = step.numbers(4);
    if (begins.size() != ends.size() || (axes && axes->size() != begins.size()) ||
        (every && every->size() != begins.size())) {
        throw NotPlayable{"has as many starts as ends nowhere"};
    }
    for (std::size_t i = 0; i < begins.size(); ++i) {
        const std::size_t dim =
            step.dimension(axes ? (*axes)[i] : static_cast<std::int64_t>(i), shape.size());
        const std::int64_t size = shape[dim];
        const std::int64_t stride = every ? (*every)[i] : 1;
        if (stride < 1) {
            throw NotPlayable{"goes backwards"};
        }
        const auto place = [&](std::int64_t at) {
            return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
        };
        shape[dim] = ceil_div(std::max<std::int64_t>(place(ends[i]) - place(begins[i]), 0), stride);
        strides[dim] *= std::min(stride, largest_total / std::max<std::int64_t>(strides[dim], 1));
    }
    if (shape == x.value.shape()) {
        return result(x.value, x.strides);
    }
    return result(op::slice(step.f, x.value, std::move(shape)), std::move(strides));
}

std::vector<std::int64_t> sizes_of_parts(const Step& step, std::int64_t whole) {
    if (const std::optional<Numbers> sizes = step.numbers(1, "split")) {
        const bool one_size = step.has(1) && step.shape(1).empty();
        if (!one_size) {
            return *sizes;
        }
        const std::int64_t size = std::max<std::int64_t>(sizes->front(), 1);
        if (whole / size > most_parts) {
            throw NotPlayable{"splits into more than " + std::to_string(most_parts) + " parts"};
        }
        std::vector<std::int64_t> parts(index(whole / size), size);
        if (whole % size != 0) {
            parts.push_back(whole % size);
        }
        return parts;
    }
    const auto count = static_cast<std::int64_t>(step.node.outputs.size());
    std::vector<std::int64_t> parts(index(count), ceil_div(whole, count));
    parts.back() = whole - ceil_div(whole, count) * (count - 1);
    return parts;
}

std::vector<Datum> split(const Step& step) {
    const Datum& x = step.datum(0);
    const std::size_t dim = step.dimension(step.node.integer("axis", 0), x.value.shape().size());
    std::vector<Shape> shapes;
    std::int64_t rest = x.value.shape()[dim];
    for (const std::int64_t size : sizes_of_parts(step, rest)) {
        if (size < 0 || size > rest) {
            throw NotPlayable{"splits off more than there is"};
        }
        rest -= size;
        shapes.push_back(x.value.shape());
        shapes.back()[dim] = size;
    }
    std::vector<Datum> out;
    for (Value& part : op::split(step.f, x.value, shapes)) {
        out.push_back(result(std::move(part), x.strides).front());
    }
    return out;
}

std::vector<Datum> identity(const Step& step) {
    return {step.datum(0)};
}

constexpr PlayEntry entries[] = {
    {"Reshape", reshape},     {"Flatten", flatten}, {"Transpose", transpose},
    {"Unsqueeze", unsqueeze}, {"Squeeze", squeeze}, {"Expand", expand},
    {"Slice", slice},         {"Split", split},     {"Identity", identity},
};

}  // namespace

std::span<const PlayEntry> view_plays() {
    return entries;
}

}  // namespace fsdplan::onnx
