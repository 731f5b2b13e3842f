#include "verify/recorder_clock.hpp"

#include <algorithm>
#include <cmath>

// The stand-in's clock: the host spends its time on launches, calls about events and cudaMalloc alone, a
// kernel its own on its stream, and collectives do not wait for each other.
namespace fsdplan {
namespace {

constexpr double launch_ns = 5'000;
constexpr double event_ns = 300;
constexpr double malloc_ns = 100'000;
constexpr double product_ns = 3'000;  // before the first multiplication
constexpr double kernel_ns = 2'000;   // before the first byte
constexpr double product_share = 0.6;
constexpr double attention_share = 0.48;
constexpr double memory_share = 0.8;

struct Rates {
    double product_flops_per_ns;
    double attention_flops_per_ns;
    double bytes_per_ns;
    double pcie_bytes_per_ns;
    double near_bytes_per_ns;  // of collectives, up to a node
    double far_bytes_per_ns;
};

Rates rates_of(const Gpu& gpu, DType dtype) {
    const double peak = bits(dtype) >= 32 ? gpu.flops_single : gpu.flops_half;
    Rates rates{.product_flops_per_ns = peak * product_share / 1e9,
                .attention_flops_per_ns = gpu.flops_half * attention_share / 1e9,
                .bytes_per_ns = gpu.memory_bytes_per_s * memory_share / 1e9,
                .pcie_bytes_per_ns = gpu.pcie_bytes_per_s / 1e9,
                .near_bytes_per_ns = 350,
                .far_bytes_per_ns = 250};
    if (gpu.name.starts_with("a100")) {
        rates.near_bytes_per_ns = 230;
        rates.far_bytes_per_ns = 150;
    } else if (gpu.name.starts_with("b200")) {
        rates.near_bytes_per_ns = 700;
        rates.far_bytes_per_ns = 300;
    }
    return rates;
}

double collective_ns(const CollectiveCall& call, const Rates& rates) {
    constexpr std::int64_t node = 8;
    constexpr double alone = 5'000;
    constexpr double latency = 20'000;
    if (call.ranks == 1) {
        return alone;
    }
    const auto ranks = static_cast<double>(call.ranks);
    const double bytes = static_cast<double>(call.full_size().count) * (ranks - 1) / ranks;
    const double passes = call.kind == CollectiveKind::all_reduce ? 2 : 1;
    return latency + passes * bytes / (call.ranks <= node ? rates.near_bytes_per_ns : rates.far_bytes_per_ns);
}

double device_ns(const Op& op, const Schedule& schedule, const Rates& rates) {
    const auto bytes = static_cast<double>(op.bytes);
    const auto flops = static_cast<double>(op.flops);
    const double launches = std::max(op.launches, 1);
    switch (op.kind) {
        case OpKind::compute:
            if (op.flops + op.bytes + op.launches == 0) {
                return 0;
            }
            if (op.flops == 0) {
                return kernel_ns * launches + bytes / rates.bytes_per_ns;
            }
            return product_ns * launches +
                   std::max(bytes / rates.bytes_per_ns,
                            flops / (static_cast<ComputeKind>(op.detail) == ComputeKind::attention
                                         ? rates.attention_flops_per_ns
                                         : rates.product_flops_per_ns));
        case OpKind::copy:
            return kernel_ns * launches + 2 * bytes / rates.bytes_per_ns;
        case OpKind::collective:
            return collective_ns(schedule.collectives[static_cast<std::size_t>(op.target)], rates);
        case OpKind::to_device:
        case OpKind::to_host:
            return launch_ns + bytes / rates.pcie_bytes_per_ns;
        default:
            return 0;
    }
}

double host_ns(const Op& op) {
    switch (op.kind) {
        case OpKind::compute:
            return op.flops + op.bytes + op.launches == 0 ? 0 : launch_ns * std::max(op.launches, 1);
        case OpKind::copy:
        case OpKind::collective:
        case OpKind::to_device:
        case OpKind::to_host:
            return launch_ns * std::max(op.launches, 1);
        case OpKind::record:
        case OpKind::wait:
            return event_ns;
        default:
            return 0;
    }
}

}  // namespace

Timeline recorder_timeline(const Schedule& schedule, const ModuleTree& tree, const CudaMemoryCase& recorded,
                           const MemorySetup& setup) {
    const DType stored =
        tree.parameter.empty() ? DType::float32 : tree.tensors[at(tree.parameter.front())].dtype;
    const Rates rates = rates_of(recorded.cluster.gpu, recorded.job.param_dtype.value_or(stored));
    OpTimes times;
    for (const Op& op : schedule.ops) {
        times.device_ns.push_back(std::llround(device_ns(op, schedule, rates)));
        times.host_ns.push_back(std::llround(host_ns(op)));
    }
    Schedule streams;  // the same program: a communicator would keep its collectives in order
    streams.ops = schedule.ops;
    for (Op& op : streams.ops) {
        op.kind = op.kind == OpKind::collective ? OpKind::copy : op.kind;
    }
    Timeline timeline;
    play(streams, times, 1.0, timeline);
    if (recorded.timing != FreeTiming::by_clock) {
        return timeline;
    }
    // Each cudaMalloc holds the host up, whereupon blocks come back in time for others: play until the calls
    // stay where they are.
    constexpr int most_rounds = 6;
    const std::vector<std::int64_t> unhindered = times.host_ns;
    std::vector<std::int64_t> before;
    for (int round = 0; round < most_rounds && times.host_ns != before; ++round) {
        before = std::move(times.host_ns);
        AllocatorLog log;
        device_memory(schedule, timeline, setup, recorded.timing, &log);
        times.host_ns = unhindered;
        for (const AllocatorEvent& event : log.events) {
            const bool taken = event.kind == AllocatorEvent::Kind::segment_alloc;
            times.host_ns[static_cast<std::size_t>(event.op)] += taken ? std::llround(malloc_ns) : 0;
        }
        play(streams, times, 1.0, timeline);
    }
    return timeline;
}

}  // namespace fsdplan
