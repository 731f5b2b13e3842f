#include <algorithm>
#include <array>

#include "fsdplan/simulate.hpp"
#include "simulate/lanes.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20U;

}  // namespace

ProcessBytes process_bytes(const Cluster& cluster, std::int64_t communicators) {
    // Lazily loaded kernels: 0.45 to 0.55 GiB; all at once: up to 0.92 GiB.
    ProcessBytes out{.context = {512 * mib, 460 * mib, 942 * mib}, .nccl = {}};
    // One ring over 24 channels takes 221 MiB; ranks with a network edge hold up to two; NVLS adds 256 MiB.
    const std::int64_t each = cluster.nodes() > 1 ? 384 * mib : 256 * mib;
    if (cluster.gpus > 1) {
        out.nccl = {communicators * each, communicators * 200 * mib, communicators * (each + 512 * mib)};
    }
    return out;
}

std::int64_t communicators(const Schedule& schedule) {
    std::array<bool, rank_group_count> present{};
    for (const CollectiveCall& call : schedule.collectives) {
        if (call.ranks > 1) {
            present[static_cast<std::size_t>(call.group)] = true;
        }
    }
    return std::ranges::count(present, true);
}

MemorySetup usual_memory(const Cluster& cluster, const Schedule& schedule) {
    const ProcessBytes process = process_bytes(cluster, communicators(schedule));
    return {.device = cluster.budget,
            .used_by_others = {std::min(cluster.budget.count, process.context.value + process.nccl.value)}};
}

}  // namespace fsdplan
