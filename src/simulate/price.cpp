#include <algorithm>
#include <array>
#include <cmath>

#include "fsdplan/simulate.hpp"
#include "simulate/lanes.hpp"

namespace fsdplan {
namespace {

// Pinned copies reach about 0.85 of what PCIe carries after encoding: 27 of 32, 55 of 64 GB/s.
constexpr double pcie_share = 0.85;

std::int64_t at(const Estimate& estimate, Bound bound) {
    switch (bound) {
        case Bound::value:
            return estimate.value;
        case Bound::low:
            return estimate.low;
        case Bound::high:
            return estimate.high;
    }
    return estimate.value;
}

/// Prices kernels by their shape. Layers repeat, so that a small table keyed by the shape answers nearly all;
/// two shapes in one place replace each other.
class Kernels {
public:
    Kernels(const Schedule& schedule, const Gpu& gpu, const Pricing& pricing, Bound bound)
        : schedule_(schedule), gpu_(gpu), pricing_(pricing), bound_(bound) {}

    struct Work {
        ComputeKind kind = ComputeKind::products;
        bool backward = false;
        std::int32_t shape = -1;
        std::int64_t flops = -1;
        std::int64_t bytes = -1;
        std::int64_t launches = -1;

        friend bool operator==(const Work&, const Work&) = default;
    };

    std::int64_t time(const Work& work) {
        const std::uint64_t mixed = (static_cast<std::uint64_t>(work.flops) * 0x9e3779b97f4a7c15U) ^
                                    (static_cast<std::uint64_t>(work.bytes) * 0xc2b2ae3d27d4eb4fU) ^
                                    (static_cast<std::uint64_t>(work.launches) * 0x165667b19e3779f9U) ^
                                    (static_cast<std::uint64_t>(work.shape) * 0x27d4eb2f165667c5U);
        Entry& entry = table_[mixed >> (64U - places_log2)];
        if (!(entry.work == work)) {
            entry = {work, compute(work)};
        }
        return entry.ns;
    }

private:
    static constexpr unsigned places_log2 = 9;
    struct Entry {
        Work work;
        std::int64_t ns = 0;
    };

    std::int64_t compute(const Work& work) const {
        const Estimate memory = memory_time(gpu_, static_cast<double>(work.bytes), work.launches);
        return work.flops > 0 ? std::max(at(products(work), bound_), at(memory, bound_)) : at(memory, bound_);
    }

    Estimate products(const Work& work) const {
        const auto flops = static_cast<double>(work.flops);
        const bool attention = work.kind == ComputeKind::attention;
        if (work.shape < 0) {
            return attention ? attention_time(gpu_, flops)
                             : product_time(gpu_, flops, pricing_.compute_dtype);
        }
        const KernelShape& shape = schedule_.shapes[static_cast<std::size_t>(work.shape)];
        return attention ? attention_time(gpu_, shape, flops,
                                          {.backward = work.backward, .generation = pricing_.flash_attention})
                         : product_time(gpu_, shape);
    }

    const Schedule& schedule_;
    const Gpu& gpu_;
    const Pricing& pricing_;
    Bound bound_;
    std::array<Entry, std::size_t{1} << places_log2> table_{};
};

std::int64_t transfer_time(const Gpu& gpu, std::int64_t bytes, Bound bound) {
    const double ns = static_cast<double>(bytes) / (gpu.pcie_bytes_per_s * pcie_share) * 1e9;
    const double factor = bound == Bound::low ? 0.9 : bound == Bound::high ? 1.6 : 1.0;
    return std::llround(ns * factor);
}

/// What the host spends on an operation of each kind, less its launches.
std::array<std::int64_t, op_kind_count> host_times(const HostCosts& costs, Bound bound) {
    std::array<std::int64_t, op_kind_count> times{};
    const auto set = [&](OpKind kind, const Estimate& cost) {
        times[static_cast<std::size_t>(kind)] = at(cost, bound);
    };
    set(OpKind::collective, costs.collective_ns);
    set(OpKind::to_device, costs.transfer_ns);
    set(OpKind::to_host, costs.transfer_ns);
    set(OpKind::allocate, costs.allocator_ns);
    set(OpKind::free, costs.allocator_ns);
    set(OpKind::use, costs.allocator_ns);
    set(OpKind::record, costs.event_ns);
    set(OpKind::wait, costs.event_ns);
    set(OpKind::block, costs.event_ns);
    return times;
}

}  // namespace

std::vector<CollectiveTime> collective_times(const Schedule& schedule, const Cluster& cluster,
                                             const Pricing& pricing) {
    std::vector<CollectiveTime> times;
    times.reserve(schedule.collectives.size());
    for (const CollectiveCall& call : schedule.collectives) {
        times.push_back(collective_time(cluster, call.kind, call.full_size(),
                                        place(call.group, pricing.mesh, cluster, call.ranks)));
    }
    return times;
}

void price(const Schedule& schedule, const Cluster& cluster, const Pricing& pricing,
           std::span<const CollectiveTime> collectives, Bound bound, OpTimes& out) {
    FSDPLAN_ASSERT(collectives.size() == schedule.collectives.size(), "one price a distinct collective");
    const std::array<std::int64_t, op_kind_count> host = host_times(pricing.host, bound);
    const std::int64_t launch_ns = at(pricing.host.launch_ns, bound);
    const std::int64_t wait_ns = at(pricing.host.wait_ns, bound);
    Kernels kernels(schedule, cluster.gpu, pricing, bound);
    out.device_ns.resize(schedule.ops.size());
    out.host_ns.resize(schedule.ops.size());
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
        const Op& op = schedule.ops[i];
        std::int64_t launches = op.launches;
        std::int64_t device_ns = 0;
        std::int64_t host_ns = host[static_cast<std::size_t>(op.kind)];
        switch (op.kind) {
            case OpKind::compute:
                launches = std::max<std::int64_t>(launches, op.flops + op.bytes > 0 ? 1 : 0);
                device_ns = kernels.time({.kind = static_cast<ComputeKind>(op.detail),
                                          .backward = op.pass == Pass::backward,
                                          .shape = op.target,
                                          .flops = op.flops,
                                          .bytes = op.bytes,
                                          .launches = launches});
                break;
            case OpKind::copy:
                launches = std::max<std::int64_t>(launches, 1);
                device_ns = kernels.time({.flops = 0, .bytes = 2 * op.bytes, .launches = launches});
                break;
            case OpKind::collective:
                device_ns = at(collectives[static_cast<std::size_t>(op.target)].ns, bound);
                break;
            case OpKind::to_device:
            case OpKind::to_host:
                device_ns = transfer_time(cluster.gpu, op.bytes, bound);
                break;
            case OpKind::host:
                host_ns = at(op.target == static_cast<std::int32_t>(HostWork::optimizer)
                                 ? pricing.host.optimizer_ns
                                 : pricing.host.unit_hook_ns,
                             bound);
                break;
            case OpKind::wait:
            case OpKind::block:
                device_ns = op.target >= 0 ? wait_ns : 0;
                break;
            default:
                break;
        }
        out.device_ns[i] = device_ns;
        out.host_ns[i] = host_ns + launches * launch_ns;
    }
}

}  // namespace fsdplan
