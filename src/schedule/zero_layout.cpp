#include "schedule/zero_layout.hpp"

#include <algorithm>
#include <map>

#include "schedule/lowerings.hpp"
#include "schedule/units.hpp"
#include "schedule/zero12.hpp"
#include "schedule/zero3.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t master_bytes = 4;  // of one element: float32

struct Model {
    std::vector<zero::Parameter> parameters;
    std::int64_t numel = 0;
    std::int64_t trainable_numel = 0;
    std::int64_t largest_numel = 0;
};

Model model_of(const ModuleTree& tree) {
    Model model;
    std::vector<char> seen(tree.tensors.size(), 0);
    for (const TensorIndex t : tree.parameter) {
        if (seen[at(t)] != 0) {
            continue;
        }
        seen[at(t)] = 1;
        const Tensor& tensor = tree.tensors[at(t)];
        model.parameters.push_back({.numel = tensor.numel,
                                    .trainable = tensor.requires_grad,
                                    .created = static_cast<std::int32_t>(model.parameters.size())});
        model.numel += tensor.numel;
        if (tensor.requires_grad) {
            model.trainable_numel += tensor.numel;
            model.largest_numel = std::max(model.largest_numel, tensor.numel);
        }
    }
    return model;
}

/// What the last of three iterations sends; the first two differ in stage 3.
std::vector<Collective> collectives_of(const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job) {
    const Schedule schedule = lower_zero({.tree = tree, .plan = plan, .job = job, .iterations = 3});
    std::map<std::int32_t, std::int64_t> counts;
    for (const Op& op : schedule.iteration(2)) {
        if (op.kind == OpKind::collective) {
            ++counts[op.target];
        }
    }
    std::vector<Collective> out;
    for (const auto& [row, count] : counts) {
        const CollectiveCall& call = schedule.collectives[static_cast<std::size_t>(row)];
        out.push_back({.kind = call.kind,
                       .group = call.group,
                       .dtype = call.dtype,
                       .input_numel = call.input_numel,
                       .output_numel = call.output_numel,
                       .ranks = call.ranks,
                       .count = count});
    }
    return out;
}

}  // namespace

StepLayout lay_out_zero(const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job) {
    const Model model = model_of(tree);
    const int stage = job.runtime == "zero1" ? 1 : job.runtime == "zero2" ? 2 : 3;
    zero::Options options{.stage = stage, .ranks = job.mesh.ranks()};
    options.dtype = job.param_dtype.value_or(tree.tensors.empty() ? DType::float32 : tree.tensors[0].dtype);
    const std::int64_t element = element_bytes(options.dtype);

    std::int64_t owned = 0;   // elements that this rank steps over
    std::int64_t stored = 0;  // elements of parameters that it keeps
    if (stage == 3) {
        const zero::Layout3 layout = zero::layout3(model.parameters, options);
        for (std::size_t i = 0; i < model.parameters.size(); ++i) {
            stored += layout.partition_numel[i];
            owned += model.parameters[i].trainable ? layout.partition_numel[i] : 0;
        }
        for (const std::int32_t row : layout.persistent) {
            stored += model.parameters[static_cast<std::size_t>(row)].numel;
        }
    } else {
        stored = model.numel - model.trainable_numel;
        for (const zero::FlatGroup& group : zero::stored_groups(model.parameters, options)) {
            stored += group.flat_numel;
            owned += group.partition_numel;
        }
    }
    const std::int64_t masters = options.dtype == DType::float32 ? 0 : owned * master_bytes;

    StepLayout step;
    UnitLayout whole{.end = static_cast<std::int32_t>(tree.size()), .numel = model.numel};
    whole.shard_bytes = stored * element + masters;
    // Stage 3 may gather up to its live limit, and one set more.
    whole.unsharded_bytes =
        stage == 3
            ? std::min(model.numel, options.max_live_parameters + options.prefetch_bucket_size) * element
            : 0;
    whole.gradient_shard_bytes = (stage == 1 ? model.trainable_numel : owned) * element;
    step.owned_numel = owned;
    step.owned_bytes = owned * master_bytes;
    step.largest_owned_bytes = std::min(owned, model.largest_numel) * master_bytes;
    step.units.push_back(whole);

    const std::int64_t bucket = options.reduce_bucket_size * element;
    const std::int64_t kept = job.accumulate > 1 ? whole.gradient_shard_bytes : 0;
    const std::int64_t always = stage == 3 ? bucket : 0;  // stage 3 never gives its bucket back
    step.moments = {
        {.phase = Phase::forward,
         .row = 0,
         .unsharded_bytes = whole.unsharded_bytes,
         .buffer_bytes = always,
         .gradient_shard_bytes = kept},
        {.phase = Phase::loss,
         .unsharded_bytes = whole.unsharded_bytes,
         .buffer_bytes = always,
         .gradient_shard_bytes = kept},
        {.phase = Phase::backward,
         .row = 0,
         .unsharded_bytes = whole.unsharded_bytes,
         .buffer_bytes = bucket,
         .gradient_shard_bytes = kept},
        {.phase = Phase::gradient,
         .row = 0,
         .unsharded_bytes = whole.unsharded_bytes,
         .gradient_bytes = model.largest_numel * element,
         .buffer_bytes = bucket,
         .gradient_shard_bytes = whole.gradient_shard_bytes},
        // The gradients of what is owned, widened.
        {.phase = Phase::step,
         .buffer_bytes = always + (masters > 0 ? owned * master_bytes : 0),
         .gradient_shard_bytes = owned * element},
    };
    step.collectives = collectives_of(tree, plan, job);
    add_up(step);
    return step;
}

}  // namespace fsdplan
