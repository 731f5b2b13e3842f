#include "planner/simulated.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

// The first iteration differs (states are created, orders are not known yet); the second is like all others.
constexpr int iterations = 2;

// The most that the allocator takes for a device, so that nothing is ever refused or given back.
constexpr Bytes without_limit = 4'096_GiB;

}  // namespace

SimulatedPlan simulate_plan(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job) {
    SimulatedPlan out;
    out.schedule = lower({.tree = about.tree,
                          .plan = plan,
                          .job = job,
                          .work = about.work.rows,
                          .loss = about.work.loss,
                          .workspace_bytes = about.cluster.gpu.cublas_workspace_bytes,
                          .iterations = iterations});
    SimulationOptions options;
    options.pricing.mesh = job.mesh;
    options.pricing.compute_dtype = job.param_dtype.value_or(DType::float32);
    options.memory = usual_memory(about.cluster, out.schedule);
    options.memory->device = without_limit;
    out.run = simulate(out.schedule, about.cluster, options);
    return out;
}

std::vector<Collective> traffic_of(const Schedule& schedule) {
    std::vector<std::int32_t> place(schedule.collectives.size(), -1);
    std::vector<Collective> out;
    for (const Op& op : schedule.iteration(schedule.iteration_begin.size() - 1)) {
        if (op.kind != OpKind::collective) {
            continue;
        }
        std::int32_t& row = place[static_cast<std::size_t>(op.target)];
        if (row < 0) {
            const CollectiveCall& call = schedule.collectives[static_cast<std::size_t>(op.target)];
            row = static_cast<std::int32_t>(out.size());
            out.push_back({.kind = call.kind,
                           .group = call.group,
                           .dtype = call.dtype,
                           .input_numel = call.input_numel,
                           .output_numel = call.output_numel,
                           .ranks = call.ranks});
        }
        ++out[static_cast<std::size_t>(row)].count;
    }
    return out;
}

std::int64_t sent_bytes(const std::vector<Collective>& collectives) {
    std::int64_t bytes = 0;
    for (const Collective& call : collectives) {
        bytes += call.sent().count * call.count;
    }
    return bytes;
}

}  // namespace fsdplan
