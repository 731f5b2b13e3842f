#include "planner/search/score.hpp"

#include <algorithm>

#include "planner/simulated.hpp"
#include "planner/training_schedule.hpp"

namespace fsdplan {
namespace {

constexpr int iterations = 2;

std::int64_t allocated_peak(const Schedule& schedule) {
    std::int64_t now = 0;
    std::int64_t peak = 0;
    for (const Op& op : schedule.ops) {
        if (op.kind != OpKind::allocate && op.kind != OpKind::free) {
            continue;
        }
        if (!schedule.buffers[static_cast<std::size_t>(op.target)].on_host) {
            now += op.kind == OpKind::allocate ? op.bytes : -op.bytes;
            peak = std::max(peak, now);
        }
    }
    return peak;
}

}  // namespace

Played play_plan(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job) {
    Played out{.schedule = schedule_with_work(about, plan, job, {.iterations = iterations})};
    const Pricing pricing = pricing_of(job);
    const std::vector<CollectiveTime> collectives = collective_times(out.schedule, about.cluster, pricing);
    price(out.schedule, about.cluster, pricing, collectives, Bound::value, out.times);
    play(out.schedule, out.times, about.cluster.gpu.constants.overlap.value, out.timeline);
    return out;
}

Score score_of(const Evaluation& about, const WrapPlan& plan, const TrainingJob& job) {
    const Played played = play_plan(about, plan, job);
    return {.step_ns = iteration_times(played.schedule, played.timeline, {}).back().ns(),
            .allocated_bytes = allocated_peak(played.schedule),
            .operations = static_cast<std::int64_t>(played.schedule.ops.size())};
}

}  // namespace fsdplan
