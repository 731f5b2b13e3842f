#include <algorithm>
#include <cmath>

#include "fsdplan/simulate.hpp"
#include "planner/estimates.hpp"

namespace fsdplan {

ProcessEstimate estimate_process(const Cluster& cluster, const TrainingJob& job) {
    const std::int64_t communicators = is_hybrid(job.strategy) ? 2 : 1;
    const ProcessBytes process = process_bytes(cluster, communicators);
    ProcessEstimate out{.context = process.context, .nccl = process.nccl, .nccl_note = {}};
    out.nccl_note = cluster.gpus == 1 ? "one GPU: no communicator"
                                      : std::to_string(communicators) +
                                            (communicators == 1 ? " communicator" : " communicators") +
                                            ", outside the allocator";
    return out;
}

Estimate estimate_slack(const Estimate& allocated, std::int64_t constant_bytes,
                        std::int64_t run_ahead_bytes) {
    // Published runs reserve 1.05 to 1.37 times what is active at the peak. Shards and states never move, so
    // the slack is what the rest makes: a third of it as a rule, in the worst of these runs five sixths.
    const auto moving = [&](std::int64_t bytes) {
        return static_cast<double>(std::max<std::int64_t>(0, bytes - constant_bytes));
    };
    const auto round = [](double bytes) { return static_cast<std::int64_t>(std::llround(bytes)); };
    const double most = std::min(0.37 * static_cast<double>(allocated.high), 0.83 * moving(allocated.high));
    return {.value = round(0.20 * moving(allocated.value)),
            .low = round(0.05 * moving(allocated.low)),
            .high = std::max(round(0.20 * moving(allocated.value)), round(most)) + run_ahead_bytes};
}

}  // namespace fsdplan
