#include "schedule/fsdp1_handle.hpp"

#include <algorithm>

#include "schedule/gradient_division.hpp"
#include "wrap/flat_parameter.hpp"

namespace fsdplan::fsdp1 {
namespace {

void add_buffers(Handle& h, std::int64_t ranks, const TrainingJob& job, Emitter& emit) {
    const auto buffer = [&](std::int64_t numel, DType dtype, Category category, Stream stream,
                            bool on_host = false) {
        return add_buffer(emit, h.unit, numel, dtype, category, stream, on_host);
    };
    h.shard = buffer(h.shard_numel, h.settings.orig, Category::shard, Stream::compute, job.offload);
    if (h.mixed()) {
        h.low_precision_shard =
            buffer(h.shard_numel, h.settings.param, Category::low_precision_shard, pre_unshard_stream);
    }
    if (job.offload) {
        h.device_shard = buffer(h.shard_numel, h.settings.orig, Category::shard, pre_unshard_stream);
    }
    if (h.sharded()) {
        h.unsharded = buffer(h.shard_numel * ranks, h.settings.param, Category::unsharded, unshard_stream);
    }
    h.flat_gradient = buffer(h.numel, h.settings.param, Category::gradient, views_stream);
    h.fresh_gradient = buffer(h.numel, h.settings.param, Category::gradient, views_stream);
    if (h.settings.reduce != h.settings.param) {
        h.cast_gradient = buffer(h.numel, h.settings.reduce, Category::reduce_input, post_backward_stream);
    }
    if (h.numel % ranks != 0) {
        h.padded_gradient =
            buffer(h.shard_numel * ranks, h.settings.reduce, Category::reduce_input, post_backward_stream);
    }
    h.reduced = buffer(h.shard_numel, h.settings.reduce, Category::reduce_output, post_backward_stream);
    if (job.fsdp1.keep_low_precision_gradients) {
        h.low_precision_gradient =
            buffer(h.shard_numel, h.settings.param, Category::gradient_shard, Stream::compute);
    }
    if (job.offload) {
        h.host_gradient =
            buffer(h.shard_numel, h.settings.orig, Category::gradient_shard, Stream::compute, true);
    }
    const bool keeps_low = job.fsdp1.keep_low_precision_gradients;
    // What the reduction writes, unless a cast behind the all-reduce makes a new one.
    const bool cast_last = h.hybrid() && h.settings.reduce != h.settings.orig;
    h.shard_gradient =
        buffer(h.shard_numel, h.sharded() || !keeps_low ? h.settings.orig : h.settings.reduce,
               Category::gradient_shard, cast_last ? Stream::all_reduce : post_backward_stream);
}

void add_collectives(Handle& h, std::int64_t ranks, const TrainingJob& job, Emitter& emit) {
    if (h.sharded()) {
        h.gather = emit.collective({.kind = CollectiveKind::all_gather,
                                    .dtype = h.settings.param,
                                    .ranks = ranks,
                                    .input_numel = h.shard_numel,
                                    .output_numel = h.shard_numel * ranks});
        h.scatter = emit.collective({.kind = CollectiveKind::reduce_scatter,
                                     .dtype = h.settings.reduce,
                                     .reduction = Reduction::sum,
                                     .ranks = ranks,
                                     .input_numel = h.shard_numel * ranks,
                                     .output_numel = h.shard_numel});
    }
    if (h.hybrid() || !h.sharded()) {
        const std::int64_t numel = h.sharded() ? h.shard_numel : h.numel;
        h.all_reduce = emit.collective({.kind = CollectiveKind::all_reduce,
                                        .group = h.sharded() ? RankGroup::replicate : RankGroup::shard,
                                        .dtype = h.settings.reduce,
                                        .reduction = Reduction::sum,
                                        .ranks = h.sharded() ? job.mesh.replicate : job.mesh.ranks(),
                                        .input_numel = numel,
                                        .output_numel = numel});
    }
}

void add_members(Handle& h, const Unit& unit, const ModuleTree& tree, bool use_orig_params) {
    std::vector<std::int64_t> numels;
    for (const TensorIndex t : unit.parameters) {
        numels.push_back(tree.tensors[at(t)].numel);
        h.requires_grad = h.requires_grad || tree.tensors[at(t)].requires_grad;
    }
    const FlatLayout layout =
        flat_layout(numels, use_orig_params, h.settings.param, static_cast<int>(h.settings.ranks));
    h.numel = layout.numel;
    for (std::size_t i = 0; i < numels.size(); ++i) {
        h.members.push_back({.tensor = unit.parameters[i],
                             .numel = numels[i],
                             .offset = layout.offsets[i],
                             .trainable = tree.tensors[at(unit.parameters[i])].requires_grad});
    }
}

void set_up(Handle& h, TrainingLoop& loop) {
    const Unit& plan = *loop.units[static_cast<std::size_t>(h.unit)].plan;
    if (plan.parameters.empty()) {
        return;
    }
    h.exists = true;
    h.settings = settings_of(plan, loop.tree, loop.job);
    add_members(h, plan, loop.tree, loop.job.use_orig_params);
    const std::int64_t flat_ranks = h.sharded() ? h.settings.ranks : 1;
    h.shard_numel = ceil_div(h.numel, flat_ranks);
    const auto all_ranks = static_cast<double>(loop.job.mesh.ranks());
    h.predivide = predivide_factor(all_ranks);
    h.postdivide = all_ranks / h.predivide;
    add_buffers(h, flat_ranks, loop.job, loop.emit);
    for (Handle::Member& member : h.members) {
        member.gradient = add_buffer(loop.emit, h.unit, member.numel, h.settings.param, Category::gradient,
                                     Stream::compute);
    }
    add_collectives(h, flat_ranks, loop.job, loop.emit);
}

/// The rank whose pieces of trainable parameters come to most bytes; of several the first.
std::int64_t busiest_rank(const std::vector<Handle>& handles) {
    struct Change {
        std::int64_t rank = 0;
        std::int64_t bytes = 0;  // more from this rank on
    };
    std::vector<Change> changes;
    for (const Handle& h : handles) {
        const auto add = [&](std::int64_t from, std::int64_t to, std::int64_t numel) {
            const std::int64_t bytes = bytes_of(numel, h.settings.orig).count;
            changes.push_back({from, bytes});
            changes.push_back({to, -bytes});
        };
        for (const Handle::Member& m : h.members) {
            if (!m.trainable || m.numel == 0 || !h.sharded()) {
                continue;
            }
            const std::int64_t first = m.offset / h.shard_numel;
            const std::int64_t last = (m.offset + m.numel - 1) / h.shard_numel;
            for (const std::int64_t rank : {first, last}) {
                add(rank, rank + 1, local_numel(m.offset, m.numel, h.shard_numel, rank));
                if (first == last) {
                    break;
                }
            }
            if (last - first > 1) {
                add(first + 1, last, h.shard_numel);
            }
        }
    }
    std::ranges::sort(changes, {}, &Change::rank);
    std::int64_t busiest = 0;
    std::int64_t most = 0;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < changes.size(); ++i) {
        bytes += changes[i].bytes;
        const bool last_of_rank = i + 1 == changes.size() || changes[i + 1].rank != changes[i].rank;
        if (last_of_rank && bytes > most) {
            most = bytes;
            busiest = changes[i].rank;
        }
    }
    return busiest;
}

}  // namespace

Settings settings_of(const Unit& unit, const ModuleTree& tree, const TrainingJob& job) {
    Settings out{.strategy = job.strategy};
    if (const std::string* given = find_argument(unit.arguments, "sharding_strategy")) {
        out.strategy = *given == "null" ? Strategy::full_shard  // the constructor's default
                                        : parse_strategy(unquoted(*given), "--policy: \"" + unit.path + "\"");
    }
    out.ranks = is_hybrid(out.strategy) ? job.mesh.shard : job.mesh.ranks();
    if (out.ranks == 1 && !is_hybrid(out.strategy)) {
        out.strategy = Strategy::no_shard;
    }
    out.orig = tree.tensors[at(unit.parameters.front())].dtype;
    const bool full_precision = find_argument(unit.arguments, "mixed_precision") != nullptr;
    out.param = full_precision ? out.orig : job.param_dtype.value_or(out.orig);
    out.reduce = full_precision ? out.orig : job.reduce_dtype.value_or(out.param);
    return out;
}

std::vector<Handle> handles_of(TrainingLoop& loop, std::optional<std::int64_t> rank) {
    std::vector<Handle> handles(loop.units.size());
    for (std::size_t u = 0; u < handles.size(); ++u) {
        handles[u].unit = static_cast<std::int32_t>(u);
        set_up(handles[u], loop);
    }
    if (loop.job.use_orig_params) {
        const std::int64_t own = rank ? *rank : busiest_rank(handles);
        for (Handle& h : handles) {
            for (Handle::Member& m : h.members) {
                m.local_numel = h.sharded()
                                    ? local_numel(m.offset, m.numel, h.shard_numel, own % h.settings.ranks)
                                    : m.numel;
            }
        }
    }
    return handles;
}

std::int32_t add_buffer(Emitter& emit, std::int32_t unit, std::int64_t numel, DType dtype, Category category,
                        Stream stream, bool on_host) {
    return emit.buffer({.bytes = bytes_of(numel, dtype).count,
                        .category = category,
                        .stream = stream,
                        .on_host = on_host,
                        .unit = unit});
}

}  // namespace fsdplan::fsdp1
