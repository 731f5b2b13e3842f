#include <algorithm>

#include "model/onnx/step.hpp"
#include "operators/attention.hpp"
#include "operators/convolution.hpp"
#include "operators/functional.hpp"

// Matrix products, attention and convolutions.
namespace fsdplan::onnx {
namespace {

void must_agree(std::int64_t a, std::int64_t b) {
    if (a != b) {
        throw NotPlayable{"multiplies over " + std::to_string(a) + " and " + std::to_string(b) + " elements"};
    }
}

/// FLOPs count up to six products of these.
void must_be_countable(std::int64_t a, std::int64_t b) {
    constexpr std::int64_t most = std::int64_t{1} << 59U;
    if (a != 0 && b > most / a) {
        throw NotPlayable{"has more FLOPs than can be counted"};
    }
}

std::vector<Datum> linear(const Step& step) {
    const Value& x = step.value(0);
    const Value& weight = step.value(1);
    const bool transposed = step.node.integer("transposed", 0) != 0;
    if (x.shape().empty() || weight.shape().size() != 2) {
        throw NotPlayable{"multiplies tensors without enough dimensions"};
    }
    must_agree(x.size(-1), weight.size(transposed ? 0 : 1));
    Shape shape = x.shape();
    shape.back() = weight.size(transposed ? 1 : 0);
    possible(shape);
    must_be_countable(x.numel(), shape.back());
    const Value bias = step.has(2) ? step.value(2) : Value();
    return result(transposed ? op::linear_transposed(step.f, x, weight, bias)
                             : op::linear(step.f, x, weight, bias));
}

/// As bmm wants it: matrices of one batch, copied where the dimensions of the batch cannot be seen as one.
Value as_batch(const Step& step, std::size_t i) {
    const Datum& x = step.datum(i);
    const Shape& shape = x.value.shape();
    Shape flat{1, shape[shape.size() - 2], shape.back()};
    for (std::size_t dim = 0; dim + 2 < shape.size(); ++dim) {
        flat[0] *= shape[dim];
    }
    return strides_of_view(shape, x.strides, flat) ? x.value : op::contiguous(step.f, x.value);
}

std::vector<Datum> matmul(const Step& step) {
    const Shape& a = step.shape(0);
    const Shape& b = step.shape(1);
    if (a.size() < 2 || b.size() < 2) {
        throw NotPlayable{"multiplies tensors without enough dimensions"};
    }
    must_agree(a.back(), b[b.size() - 2]);
    Shape shape = broadcast_of(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2));
    shape.insert(shape.end(), {a[a.size() - 2], b.back()});
    possible(shape);
    must_be_countable(numel_of(shape), a.back());
    Value left = as_batch(step, 0);
    Value right = as_batch(step, 1);
    return result(op::matmul(step.f, std::move(left), std::move(right), std::move(shape)));
}

/// k as [b, h, s, d], whatever the exporter made of its two transpositions.
Value keys_by_head(const Step& step) {
    const Value& k = step.value(1);
    const std::vector<std::int64_t> order = step.node.integers("k_order");
    const bool by_position = order.size() == 4 && order[1] == 2;
    return by_position ? op::reshape(step.f, k, Shape{k.size(0), k.size(2), k.size(1), k.size(3)}) : k;
}

std::vector<Datum> attention(const Step& step) {
    const Value& q = step.value(0);
    const Value& v = step.value(2);
    if (q.shape().size() != 4 || v.shape().size() != 4 || step.shape(1).size() != 4) {
        throw NotPlayable{"is attention without heads"};
    }
    const Value k = keys_by_head(step);
    must_agree(q.size(3), k.size(3));
    must_agree(k.size(2), v.size(2));
    must_agree(k.size(1), v.size(1));
    must_agree(q.size(0), k.size(0));
    if (q.size(1) % k.size(1) != 0) {
        throw NotPlayable{"shares heads that do not divide"};
    }
    const Shape shape = possible({q.size(0), q.size(1), q.size(2), v.size(3)});
    must_be_countable(possible({q.size(0), q.size(1), q.size(2), k.size(2)}).empty() ? 0 : q.numel(),
                      k.size(2));
    const Value mask = step.has(3) ? step.value(3) : Value();
    const Value mixed = attention::sdpa(step.f, q, k, v, mask, false);
    // It lies in memory as [b, s, h, d].
    const Shape strides{shape[2] * shape[1] * shape[3], shape[3], shape[1] * shape[3], 1};
    return result(op::reshape(step.f, mixed, shape), strides);
}

/// One dimension behind a kernel that slides over it.
std::int64_t slid(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t padding,
                  std::int64_t dilation, bool round_up) {
    constexpr std::int64_t most = std::int64_t{1} << 30U;
    if (kernel < 1 || stride < 1 || dilation < 1 || padding < 0 || kernel > most || dilation > most ||
        padding > most) {
        throw NotPlayable{"has a kernel that cannot be"};
    }
    const std::int64_t room = size + padding - dilation * (kernel - 1) - 1;
    if (room < 0) {
        throw NotPlayable{"has a kernel larger than its input"};
    }
    return (round_up ? ceil_div(room, stride) : room / stride) + 1;
}

/// The spatial dimensions behind the kernel of a node.
Shape spatial(const Step& step, const Shape& from, const Shape& kernel) {
    const std::size_t dims = from.size() - 2;
    const auto padding = step.node.attributes.find("auto_pad");
    if (padding != step.node.attributes.end() && padding->second.s.starts_with("SAME")) {
        throw NotPlayable{"pads to the size of its input"};
    }
    const auto list = [&](std::string_view name, std::size_t count, std::int64_t absent) {
        std::vector<std::int64_t> out = step.node.integers(name);
        out.resize(out.empty() ? count : out.size(), absent);
        if (out.size() != count) {
            throw NotPlayable{"has another number of " + std::string(name) + " than of dimensions"};
        }
        return out;
    };
    const std::vector<std::int64_t> strides = list("strides", dims, 1);
    const std::vector<std::int64_t> dilations = list("dilations", dims, 1);
    const std::vector<std::int64_t> pads = list("pads", 2 * dims, 0);
    Shape out;
    for (std::size_t i = 0; i < dims; ++i) {
        out.push_back(slid(from[i + 2], kernel[i], strides[i],
                           std::max<std::int64_t>(pads[i], 0) + std::max<std::int64_t>(pads[i + dims], 0),
                           dilations[i], step.node.integer("ceil_mode", 0) != 0));
    }
    return out;
}

std::vector<Datum> convolution(const Step& step) {
    const Value& x = step.value(0);
    const Value& weight = step.value(1);
    const std::size_t rank = x.shape().size();
    if (rank < 3 || weight.shape().size() != rank) {
        throw NotPlayable{"is a convolution without dimensions to slide over"};
    }
    Shape shape{x.size(0), weight.size(0)};
    const Shape sizes = spatial(step, x.shape(), Shape(weight.shape().begin() + 2, weight.shape().end()));
    shape.insert(shape.end(), sizes.begin(), sizes.end());
    possible(shape);
    must_be_countable(numel_of(shape), weight.numel() / weight.size(0));
    // The exporter writes zeros for a bias that is not there.
    const bool has_bias = step.has(2) && !step.inputs[2]->is_constant;
    return result(op::convolution(step.f, x, weight, has_bias ? step.value(2) : Value(), std::move(shape)));
}

std::vector<Datum> pool(const Step& step) {
    const Value& x = step.value(0);
    const Shape kernel = step.node.integers("kernel_shape");
    if (x.shape().size() < 3 || kernel.size() + 2 != x.shape().size()) {
        throw NotPlayable{"has a kernel that does not fit its input"};
    }
    Shape shape{x.size(0), x.size(1)};
    const Shape sizes = spatial(step, x.shape(), kernel);
    shape.insert(shape.end(), sizes.begin(), sizes.end());
    const bool largest = step.node.op == "MaxPool";
    return result(largest ? op::max_pool(step.f, x, possible(shape))
                          : op::average_pool(step.f, x, possible(shape)));
}

constexpr PlayEntry entries[] = {
    {"linear", linear},    {"MatMul", matmul}, {"attention", attention},
    {"Conv", convolution}, {"MaxPool", pool},  {"AveragePool", pool},
};

}  // namespace

std::span<const PlayEntry> product_plays() {
    return entries;
}

}  // namespace fsdplan::onnx
