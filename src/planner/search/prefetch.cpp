#include "planner/search/prefetch.hpp"

#include <algorithm>
#include <string>

namespace fsdplan {
namespace {

/// Module paths of the units that gather in a pass of the last iteration, in that order, each once.
std::vector<std::string> gathering_units(const Schedule& schedule, Pass pass) {
    std::vector<std::string> out;
    for (auto i = static_cast<std::size_t>(schedule.iteration_begin.back()); i < schedule.ops.size(); ++i) {
        const Op& op = schedule.ops[i];
        const bool gathers =
            op.kind == OpKind::collective && op.pass == pass && op.unit >= 0 &&
            schedule.collectives[static_cast<std::size_t>(op.target)].kind == CollectiveKind::all_gather;
        if (!gathers) {
            continue;
        }
        const std::string& names = schedule.units[static_cast<std::size_t>(op.unit)];
        std::string path = names.substr(0, names.find(','));  // any module of a group stands for it
        if (std::ranges::find(out, path) == out.end()) {
            out.push_back(std::move(path));
        }
    }
    return out;
}

Fsdp2Options::PrefetchLists lists_of(const std::vector<std::string>& units, std::size_t ahead) {
    Fsdp2Options::PrefetchLists out;
    for (std::size_t u = 0; u + 1 < units.size(); ++u) {
        const std::size_t end = std::min(u + 1 + ahead, units.size());
        out.push_back({units[u],
                       {units.begin() + static_cast<std::ptrdiff_t>(u) + 1,
                        units.begin() + static_cast<std::ptrdiff_t>(end)}});
    }
    return out;
}

}  // namespace

std::vector<TrainingJob> with_other_prefetching(const Evaluation& about, const WrapPlan& plan,
                                                const TrainingJob& job) {
    std::vector<TrainingJob> out;
    const RuntimeInfo& info = runtime(job.runtime);
    if (!info.has_units) {
        return out;
    }
    if (info.wraps_by_policy) {
        for (const bool forward : {false, true}) {
            for (const BackwardPrefetch backward : {BackwardPrefetch::pre, BackwardPrefetch::post}) {
                TrainingJob other = job;
                other.forward_prefetch = forward;
                other.backward_prefetch = backward;
                out.push_back(std::move(other));
            }
        }
        return out;
    }
    const Schedule schedule = play_plan(about, plan, job).schedule;
    const std::vector<std::string> forward = gathering_units(schedule, Pass::forward);
    const std::vector<std::string> backward = gathering_units(schedule, Pass::backward);
    for (const std::size_t ahead : {1U, 2U}) {
        TrainingJob other = job;
        other.fsdp2.forward_prefetch = lists_of(forward, ahead);
        out.push_back(other);
        other.fsdp2.backward_prefetch = lists_of(backward, ahead);
        out.push_back(std::move(other));
    }
    return out;
}

}  // namespace fsdplan
