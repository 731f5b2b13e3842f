#include "planner/work.hpp"

#include <algorithm>
#include <cmath>

namespace fsdplan {
namespace {

// Passes over what is saved, as a measure of the work that matrix products do not do: norms, activations,
// residuals and rotations read and write about as much, forward and more of it backward.
constexpr std::int64_t forward_passes = 3;
constexpr std::int64_t backward_passes = 5;

// Kernels that eager PyTorch launches for a layer with parameters (with the rotations, residuals and reshapes
// around it) and for one without: 30 to 40 in the forward of a Llama block of nine layers.
constexpr std::int32_t layer_launches = 4;
constexpr std::int32_t layer_backward_launches = 7;
constexpr std::int32_t plain_launches = 1;
constexpr std::int32_t plain_backward_launches = 2;

// A matrix product's backward takes twice its forward, flash attention's 2.5 times.
constexpr double product_backward = 2.0;
constexpr double attention_backward = 2.5;

// Selective checkpointing recomputes about every other product.
constexpr std::int64_t selective_divisor = 2;

struct RowFlops {
    std::vector<double> products;
    std::vector<double> attention;
};

RowFlops flops_of(const ModuleTree& tree, const ModelFacts& facts, const TrainingJob& job) {
    RowFlops out{.products = std::vector<double>(tree.size()), .attention = std::vector<double>(tree.size())};
    const auto tokens = static_cast<double>(job.tokens());
    const auto chosen = static_cast<double>(facts.experts_per_token);
    for (const Layer& layer : facts.shape.layers) {
        double share = 0.0;
        if (layer.kind == LayerKind::linear || layer.kind == LayerKind::fused_experts) {
            share = layer.experts > 1 ? std::min(1.0, chosen / static_cast<double>(layer.experts)) : 1.0;
        }
        out.products[static_cast<std::size_t>(layer.row)] +=
            2.0 * tokens * static_cast<double>(layer.numel) * share;
    }
    for (const LinearGroup& group : facts.shape.groups) {
        if (group.attention) {
            // Half of the scores lie above the diagonal.
            const std::int32_t row = facts.shape.layers[group.members.front()].row;
            out.attention[static_cast<std::size_t>(row)] +=
                2.0 * tokens * static_cast<double>(job.sequence) * static_cast<double>(group.inner);
        }
    }
    return out;
}

/// How many operations of a matrix product take as long as one of flash attention.
double attention_weight(const Gpu& gpu, DType dtype) {
    constexpr double sample = 1e15;
    const auto product = static_cast<double>(product_time(gpu, sample, dtype).value);
    return product > 0.0 ? static_cast<double>(attention_time(gpu, sample).value) / product : 1.0;
}

std::int64_t rounded(double value) {
    return static_cast<std::int64_t>(std::llround(value));
}

}  // namespace

ModelWork work_of(const ModuleTree& tree, const ModelFacts& facts, const Activations& activations,
                  const LossBytes& loss, const TrainingJob& job, const Gpu& gpu) {
    ModelWork out;
    out.rows.resize(tree.size());
    const RowFlops flops = flops_of(tree, facts, job);
    const double weight = attention_weight(gpu, job.param_dtype.value_or(DType::float32));
    const bool selective = job.activation_checkpointing.mode == ActivationCheckpointing::Mode::selective;
    std::vector<char> has_layer(tree.size(), 0);
    for (const Layer& layer : facts.shape.layers) {
        has_layer[static_cast<std::size_t>(layer.row)] = 1;
    }
    for (std::size_t row = 0; row < tree.size(); ++row) {
        const auto r = static_cast<std::int32_t>(row);
        const std::int64_t saved = activations.saved.between(r, r + 1).value;
        const double attention = weight * flops.attention[row];
        CallWork& work = out.rows[row];
        work.flops = rounded(flops.products[row] + attention);
        work.backward_flops =
            rounded(product_backward * flops.products[row] + attention_backward * attention);
        work.recompute_flops = selective ? work.flops / selective_divisor : work.flops;
        work.bytes = forward_passes * saved;
        work.backward_bytes = backward_passes * saved;
        work.saved_bytes = saved;
        work.launches = has_layer[row] != 0 ? layer_launches : plain_launches;
        work.backward_launches = has_layer[row] != 0 ? layer_backward_launches : plain_backward_launches;
    }
    for (const Activations::Region& region : activations.recomputed) {
        out.rows[static_cast<std::size_t>(region.begin)].input_bytes = region.kept.value;
    }
    const Estimate& all = activations.saved.all();
    if (all.value > 0) {
        out.saved_low = static_cast<double>(all.low) / static_cast<double>(all.value);
        out.saved_high = static_cast<double>(all.high) / static_cast<double>(all.value);
    }
    out.loss.saved_bytes = loss.logits.value;
    out.loss.temporary_bytes = loss.loss.value;
    out.loss.bytes = forward_passes * loss.logits.value + loss.loss.value;
    out.loss.backward_bytes = loss.logits.value + loss.loss.value;
    out.loss.launches = layer_launches;
    out.loss.backward_launches = layer_launches;
    return out;
}

}  // namespace fsdplan
