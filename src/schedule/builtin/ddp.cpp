#include <algorithm>
#include <array>

#include "schedule/ddp_buckets.hpp"
#include "schedule/lowerings.hpp"
#include "schedule/units.hpp"

// DistributedDataParallel: the whole model on every rank, gradients all-reduced in buckets.
namespace fsdplan {
namespace {

constexpr std::int64_t first_bucket_bytes = std::int64_t{1} << 20U;
constexpr std::int64_t bucket_bytes = std::int64_t{25} << 20U;

/// Parameters in registration order, each object once.
std::vector<TensorIndex> registered(const ModuleTree& tree) {
    std::vector<char> seen(tree.tensors.size(), 0);
    std::vector<TensorIndex> order;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        for (const TensorIndex t : tree.parameters(static_cast<ModuleIndex>(m))) {
            if (seen[at(t)] == 0) {
                seen[at(t)] = 1;
                order.push_back(t);
            }
        }
    }
    return order;
}

/// Tensors that autocast copies into the compute dtype: weights of matrix products, not embedding tables.
std::vector<char> cast_by_autocast(const ModuleTree& tree) {
    std::vector<char> cast(tree.tensors.size(), 0);
    for (std::size_t m = 0; m < tree.size(); ++m) {
        const auto module = static_cast<ModuleIndex>(m);
        if (short_name(tree.class_info(module).name).find("Embedding") != std::string_view::npos) {
            continue;
        }
        for (const TensorIndex t : tree.parameters(module)) {
            cast[at(t)] = tree.tensors[at(t)].shape.size() >= 2 ? 1 : 0;
        }
    }
    return cast;
}

/// Elements of each bucket from the second step on: gradients become ready from the last parameter to the
/// first, a bucket is closed once it reaches its limit, and the first limit is small.
std::vector<std::pair<DType, std::int64_t>> buckets(const ModuleTree& tree,
                                                    const std::vector<TensorIndex>& order) {
    struct Open {
        DType dtype;
        std::int64_t numel = 0;
        std::int64_t limit = first_bucket_bytes;
    };
    std::vector<Open> open;
    std::vector<std::pair<DType, std::int64_t>> closed;
    for (std::size_t i = order.size(); i-- > 0;) {
        const Tensor& tensor = tree.tensors[at(order[i])];
        if (!tensor.requires_grad) {
            continue;
        }
        auto found = std::ranges::find(open, tensor.dtype, &Open::dtype);
        if (found == open.end()) {
            open.push_back({tensor.dtype});
            found = open.end() - 1;
        }
        found->numel += tensor.numel;
        if (found->numel * element_bytes(found->dtype) >= found->limit) {
            closed.push_back({found->dtype, found->numel});
            found->numel = 0;
            found->limit = bucket_bytes;
        }
    }
    for (const Open& rest : open) {
        if (rest.numel > 0) {
            closed.push_back({rest.dtype, rest.numel});
        }
    }
    return closed;
}

StepLayout lay_out_ddp(const ModuleTree& tree, const WrapPlan&, const TrainingJob& job) {
    StepLayout layout;
    UnitLayout whole{.end = static_cast<std::int32_t>(tree.size())};
    const std::vector<TensorIndex> order = registered(tree);
    const std::vector<char> cast = cast_by_autocast(tree);
    for (const TensorIndex t : order) {
        const Tensor& tensor = tree.tensors[at(t)];
        const std::int64_t bytes = tensor.numel * element_bytes(tensor.dtype);
        whole.numel += tensor.numel;
        whole.shard_bytes += bytes;
        if (cast[at(t)] != 0 && job.param_dtype && *job.param_dtype != tensor.dtype) {
            whole.unsharded_bytes += tensor.numel * element_bytes(*job.param_dtype);
        }
        if (tensor.requires_grad) {
            whole.gradient_shard_bytes += bytes;
            layout.owned_numel += tensor.numel;
            layout.owned_bytes += bytes;
            layout.largest_owned_bytes = std::max(layout.largest_owned_bytes, bytes);
        }
    }
    layout.reduce_bucket_bytes = whole.gradient_shard_bytes;
    layout.units.push_back(whole);
    // From the second micro-batch on the gradients of the first are there.
    const std::int64_t kept = job.accumulate > 1 ? whole.gradient_shard_bytes : 0;
    layout.moments = {
        {.phase = Phase::forward,
         .row = 0,
         .unsharded_bytes = whole.unsharded_bytes,
         .gradient_shard_bytes = kept},
        {.phase = Phase::loss, .unsharded_bytes = whole.unsharded_bytes, .gradient_shard_bytes = kept},
        {.phase = Phase::backward,
         .row = 0,
         .unsharded_bytes = whole.unsharded_bytes,
         .gradient_shard_bytes = kept},
        {.phase = Phase::gradient, .row = 0, .gradient_shard_bytes = whole.gradient_shard_bytes},
        {.phase = Phase::step, .gradient_shard_bytes = whole.gradient_shard_bytes},
    };
    for (const auto& [dtype, numel] : buckets(tree, order)) {
        layout.collectives.push_back({.kind = CollectiveKind::all_reduce,
                                      .group = RankGroup::replicate,
                                      .dtype = dtype,
                                      .input_numel = numel,
                                      .output_numel = numel,
                                      .ranks = job.mesh.ranks(),
                                      .count = job.no_sync ? 1 : job.accumulate});
    }
    add_up(layout);
    return layout;
}

constexpr std::array strategies{Strategy::no_shard};

}  // namespace

namespace builtin::runtime {

extern const RuntimeInfo ddp;
constinit const RuntimeInfo ddp{
    .name = "ddp",
    .help = "torch.nn.parallel.DistributedDataParallel",
    .wraps_by_policy = false,
    .has_units = false,
    .strategies = strategies,
    .layout = lay_out_ddp,
    .lower = lower_ddp,
};

}  // namespace builtin::runtime
}  // namespace fsdplan
