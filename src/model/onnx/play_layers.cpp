#include "model/onnx/step.hpp"
#include "operators/convolution.hpp"
#include "operators/elementwise.hpp"
#include "operators/functional.hpp"

// Normalisations and pooling over whole images.
namespace fsdplan::onnx {
namespace {

std::vector<Datum> layer_norm(const Step& step) {
    const Value& x = step.value(0);
    if (x.shape().empty()) {
        throw NotPlayable{"normalises a number"};
    }
    const std::int64_t axis = step.node.integer("axis", -1);
    if (step.dimension(axis, x.shape().size()) + 1 != x.shape().size()) {
        throw NotPlayable{"normalises more than the last dimension"};
    }
    const Value weight = step.has(1) ? step.value(1) : Value();
    const Value bias = step.has(2) ? step.value(2) : Value();
    return result(op::layer_norm(step.f, x, weight, bias));
}

std::vector<Datum> batch_norm(const Step& step) {
    const Value& x = step.value(0);
    if (x.shape().size() < 2) {
        throw NotPlayable{"normalises a tensor without channels"};
    }
    return result(op::batch_norm(step.f, x, step.value(1), step.value(2)));
}

// torch's adaptive_avg_pool2d to one element takes the mean.
std::vector<Datum> global_average_pool(const Step& step) {
    Shape shape = step.shape(0);
    for (std::size_t i = 2; i < shape.size(); ++i) {
        shape[i] = 1;
    }
    return result(op::keeps_nothing(step.f, step.value(0), std::move(shape), "mean"));
}

constexpr PlayEntry entries[] = {
    {"LayerNormalization", layer_norm},
    {"BatchNormalization", batch_norm},
    {"GlobalAveragePool", global_average_pool},
};

}  // namespace

std::span<const PlayEntry> layer_plays() {
    return entries;
}

}  // namespace fsdplan::onnx
