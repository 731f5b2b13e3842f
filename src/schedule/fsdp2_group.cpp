#include "schedule/fsdp2_group.hpp"

#include <string_view>
#include <utility>

#include "schedule/reshard_ranks.hpp"

namespace fsdplan::fsdp2 {
namespace {

/// Arguments of a unit's own call of fully_shard, or the job's.
struct Settings {
    std::optional<std::int64_t> reshard;
    std::optional<DType> param;
    std::optional<DType> reduce;
};

Settings settings_of(const Unit& plan, const TrainingJob& job) {
    const auto own = [&](std::string_view argument, std::optional<DType> otherwise) {
        const std::string* value = find_argument(plan.arguments, argument);
        const auto dtype = value ? dtype_from_name(unquoted(*value)) : std::nullopt;
        return dtype ? dtype : otherwise;
    };
    const std::optional<std::int64_t> reshard = own_reshard(plan);
    return {.reshard = reshard ? reshard : job.reshard_after_forward,
            .param = own("param_dtype", job.param_dtype),
            .reduce = own("reduce_dtype", job.reduce_dtype)};
}

void set_reshard(Group& g, const Settings& given, const TrainingJob& job) {
    // The root is about to be needed again: torch keeps it unless told otherwise.
    const std::int64_t after =
        given.reshard.value_or(g.unit == 0 || !frees_after_forward(job.strategy) ? 0 : 1);
    g.reshards = after != 0;
    if (after > 1 && after < job.mesh.shard) {
        g.post_forward_ranks = after;
    }
}

void set_reduce(Group& g, const Settings& given, const Member& m, const TorchBehaviour& torch) {
    if (given.reduce && *given.reduce != m.gather) {
        g.reduce = given.reduce;
    } else if (!given.reduce && given.param && torch.reduces_in_original_dtype && m.gather != m.orig) {
        g.reduce = m.orig;
    }
}

Member member_of(TensorIndex t, const Tensor& tensor, const Settings& given, const TrainingJob& job,
                 std::int64_t rank) {
    Member m{.tensor = t, .numel = tensor.numel, .trainable = tensor.requires_grad, .orig = tensor.dtype};
    m.gather = given.param && is_floating_point(tensor.dtype) ? *given.param : tensor.dtype;
    m.bytes = bytes_of(m.numel, m.gather).count;
    m.along_rows =
        job.fsdp2.shard_dim == 0 || static_cast<std::int64_t>(tensor.shape.size()) <= job.fsdp2.shard_dim;
    if (m.along_rows) {
        const RowShard rows = row_shard(tensor.shape, job.mesh.shard, rank);
        m.padded_numel = rows.padded_numel();
        m.owned_numel = rows.owned_numel();
    } else {
        m.padded_numel = m.owned_numel = tensor.numel / job.mesh.shard;
    }
    return m;
}

std::int32_t add_buffer(Emitter& emit, const Group& g, std::int64_t bytes, Category category, Stream stream,
                        bool on_host = false) {
    return emit.buffer(
        {.bytes = bytes, .category = category, .stream = stream, .on_host = on_host, .unit = g.unit});
}

void add_buffers(Member& m, Group& g, const TrainingJob& job, Emitter& emit) {
    const auto buffer = [&](std::int64_t bytes, Category category, bool on_host = false) {
        return add_buffer(emit, g, bytes, category, Stream::compute, on_host);
    };
    const std::int64_t unsharded = bytes_of(m.padded_numel * job.mesh.shard, m.gather).count;
    g.copy_out_bytes += unsharded;
    m.shard = buffer(bytes_of(m.padded_numel, m.orig).count, Category::shard, job.offload);
    m.unsharded = buffer(unsharded, Category::unsharded);
    if (!m.along_rows) {
        m.staging = buffer(unsharded, Category::unsharded);
        m.rearranged = buffer(m.bytes, Category::gradient);
    }
    if (g.post_forward_ranks > 0) {
        m.post_forward_shard = buffer(unsharded / g.post_forward_ranks, Category::post_forward_shard);
        m.post_forward_shards.push_back(m.post_forward_shard);
    }
    if (m.trainable) {
        m.gradient = buffer(m.bytes, Category::gradient);
        m.incoming = buffer(m.bytes, Category::gradient);
        m.accumulated = buffer(bytes_of(m.numel, g.reduce.value_or(m.gather)).count, Category::gradient);
    }
}

void add_gathers(Group& g, std::int64_t gather_bytes, const TrainingJob& job, Emitter& emit) {
    const std::int64_t ranks = job.mesh.shard;
    const std::int64_t staged = bytes_of(g.staging_numel, g.staging_dtype).count;
    g.gather_bytes = gather_bytes * ranks;
    g.gather_input = add_buffer(emit, g, staged, Category::gather_input, copy_in_stream);
    if (g.post_forward_ranks > 0) {
        g.gather_input_slice = add_buffer(emit, g, staged * ranks / g.post_forward_ranks,
                                          Category::gather_input, copy_in_stream);
    }
    if (ranks == 1) {
        return;
    }
    CollectiveCall call{.kind = CollectiveKind::all_gather,
                        .dtype = g.gather_dtype,
                        .ranks = ranks,
                        .input_numel = g.gather_numel,
                        .output_numel = g.gather_numel * ranks};
    g.gather = emit.collective(call);
    if (g.post_forward_ranks > 0) {
        call.group = RankGroup::post_forward;
        call.ranks = g.post_forward_ranks;
        call.input_numel = call.output_numel / call.ranks;
        g.gather_post_forward = emit.collective(call);
    }
}

// What is stored, gathered and reduced.
void set_up(Group& g, TrainingLoop& loop, std::int64_t rank, const TorchBehaviour& torch) {
    const TrainingJob& job = loop.job;
    const Unit& plan = *loop.units[static_cast<std::size_t>(g.unit)].plan;
    if (plan.parameters.empty()) {
        return;
    }
    g.exists = true;
    const Settings given = settings_of(plan, job);
    set_reshard(g, given, job);
    bool one_dtype = true;
    std::int64_t gather_bytes = 0;
    g.members.reserve(plan.parameters.size());
    for (const TensorIndex t : plan.parameters) {
        Member m = member_of(t, loop.tree.tensors[at(t)], given, job, rank);
        one_dtype = one_dtype && (g.members.empty() || m.gather == g.gather_dtype);
        g.gather_dtype = m.gather;
        g.gather_numel += m.padded_numel;
        gather_bytes += bytes_of(m.padded_numel, m.gather).count;
        if (m.gather != m.orig) {
            g.staging_numel += m.padded_numel;
            g.staging_dtype = m.gather;
        }
        if (m.trainable) {
            g.orig = m.orig;
            set_reduce(g, given, m, torch);
        }
        add_buffers(m, g, job, loop.emit);
        g.members.push_back(std::move(m));
    }
    if (!one_dtype) {
        g.gather_dtype = DType::uint8;
        g.gather_numel = gather_bytes;
    }
    if (g.unit == 0) {
        g.divide_factor = job.fsdp2.gradient_divide_factor;
        g.force_sum = job.fsdp2.force_sum_reduction;
    }
    add_gathers(g, gather_bytes, job, loop.emit);
}

std::int32_t unit_at(const std::string& path, const TrainingLoop& loop) {
    for (std::size_t u = 0; u < loop.units.size(); ++u) {
        for (const ModuleIndex m : loop.units[u].modules) {
            if (loop.tree.path(m) == path) {
                return static_cast<std::int32_t>(u);
            }
        }
    }
    return -1;
}

void set_prefetch(std::vector<Group>& groups, const Fsdp2Options::PrefetchLists& lists,
                  std::vector<std::int32_t> Group::*list, const TrainingLoop& loop) {
    for (const auto& [path, targets] : lists) {
        const std::int32_t u = unit_at(path, loop);
        for (const std::string& target : targets) {
            if (const std::int32_t t = unit_at(target, loop); u >= 0 && t >= 0) {
                (groups[static_cast<std::size_t>(u)].*list).push_back(t);
            }
        }
    }
}

}  // namespace

std::vector<Group> groups_of(TrainingLoop& loop, std::int64_t rank) {
    const TorchBehaviour& torch = torch_behaviour(loop.job.torch);
    std::vector<Group> groups(loop.units.size());
    for (std::size_t u = 0; u < groups.size(); ++u) {
        groups[u].unit = static_cast<std::int32_t>(u);
        set_up(groups[u], loop, rank, torch);
    }
    const Fsdp2Options& options = loop.job.fsdp2;
    set_prefetch(groups, options.forward_prefetch, &Group::forward_prefetch, loop);
    set_prefetch(groups, options.backward_prefetch, &Group::backward_prefetch, loop);
    for (const std::string& path : options.no_unshard_in_backward) {
        if (const std::int32_t u = unit_at(path, loop); u >= 0) {
            groups[static_cast<std::size_t>(u)].unshards_in_backward = false;
        }
    }
    return groups;
}

std::int32_t pooled_buffer(Emitter& emit, std::vector<std::int32_t>& pool, const Buffer& wanted) {
    for (const std::int32_t b : pool) {
        if (!emit.is_live(b) && emit.at(b) == wanted) {
            return b;
        }
    }
    pool.push_back(emit.buffer(wanted));
    return pool.back();
}

}  // namespace fsdplan::fsdp2
