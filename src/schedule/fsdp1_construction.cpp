#include "schedule/fsdp1_construction.hpp"

#include <algorithm>

namespace fsdplan::fsdp1 {
namespace {

// FlatParamHandle: the parameters are concatenated and the shard is cloned from that, which then goes; the
// parameters themselves go last.
void construct_on_device(const Handle& h, const TrainingJob& job, Emitter& emit) {
    const auto hold = [&](std::int64_t numel) {
        const std::int32_t held =
            add_buffer(emit, h.unit, numel, h.settings.orig, Category::unsharded, Stream::compute);
        emit.allocate(held);
        return held;
    };
    std::vector<std::int32_t> parameters;
    for (const Handle::Member& member : h.members) {
        parameters.push_back(hold(member.numel));
    }
    const std::int32_t flat = h.sharded() ? hold(h.numel) : -1;
    const std::int32_t on_device = job.offload ? hold(h.shard_numel) : -1;  // moved to the host at the end
    emit.allocate(h.shard);
    emit.release(flat);
    for (const std::int32_t parameter : parameters) {
        emit.release(parameter);
    }
    emit.release(on_device);
}

// The first forward tries every buffer once, one unit at a time, and gives it back.
void probe(const Handle& h, Emitter& emit) {
    const auto once = [&](std::int64_t numel, DType dtype, Category category) {
        const std::int32_t b = add_buffer(emit, h.unit, numel, dtype, category, Stream::compute);
        emit.allocate(b);
        emit.free(b);
    };
    if (h.mixed()) {
        once(h.shard_numel, h.settings.param, Category::low_precision_shard);
    }
    if (h.sharded()) {
        const std::int64_t padded = h.shard_numel * h.settings.ranks;
        once(padded, h.settings.param, Category::unsharded);
        if (h.mixed()) {
            once(padded, h.settings.orig, Category::unsharded);
        }
    }
}

}  // namespace

std::vector<std::int32_t> construction_order(const WrapPlan& plan, std::span<const LoopUnit> units) {
    std::vector<std::int32_t> order;
    for (const std::int32_t constructed : plan.construction_order) {
        const Unit* unit = &plan.units[static_cast<std::size_t>(constructed)];
        const auto found = std::ranges::find(units, unit, &LoopUnit::plan);
        order.push_back(static_cast<std::int32_t>(found - units.begin()));
    }
    return order;
}

void construct(const Handle& h, const TrainingJob& job, Emitter& emit) {
    if (!h.exists) {
        return;
    }
    if (job.fsdp1.built_on_device) {
        construct_on_device(h, job, emit);
    } else {
        emit.allocate(h.shard);
    }
}

void initialize(const Handle& h, Emitter& emit) {
    if (!h.exists) {
        return;
    }
    probe(h, emit);
    if (h.host_gradient >= 0) {
        emit.allocate(h.host_gradient);
    }
}

}  // namespace fsdplan::fsdp1
