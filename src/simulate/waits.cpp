#include <algorithm>
#include <array>
#include <utility>

#include "fsdplan/simulate.hpp"
#include "simulate/lanes.hpp"

namespace fsdplan {
namespace {

constexpr std::int32_t none = -1;

Cause cause_of(const Schedule& schedule, const Op& op) {
    switch (op.kind) {
        case OpKind::compute:
            return Cause::compute;
        case OpKind::copy:
            return Cause::copy;
        case OpKind::to_device:
        case OpKind::to_host:
            return Cause::transfer;
        case OpKind::collective:
            switch (schedule.collectives[static_cast<std::size_t>(op.target)].kind) {
                case CollectiveKind::all_gather:
                    return Cause::gather;
                case CollectiveKind::broadcast:
                    return Cause::broadcast;
                default:
                    return Cause::reduce;
            }
        default:
            return Cause::host;
    }
}

/// Explains pauses backwards: from the moment a pause ends to what held it last, and from there to what held
/// that, until the pause's beginning is reached.
class Explanation {
public:
    Explanation(const Schedule& schedule, const Timeline& timeline)
        : schedule_(schedule), time_(timeline), before_(schedule.ops.size()) {
        std::array<std::int32_t, lane_count> lane{};
        std::array<std::int32_t, rank_group_count> communicator{};
        lane.fill(none);
        communicator.fill(none);
        std::int32_t held = none;
        for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
            const Op& op = schedule.ops[i];
            Before& before = before_[i];
            before.held = held;
            before.lane = std::exchange(lane[lane_of(op)], static_cast<std::int32_t>(i));
            if (op.kind == OpKind::collective) {
                const CollectiveCall& call = schedule.collectives[static_cast<std::size_t>(op.target)];
                before.communicator = std::exchange(communicator[static_cast<std::size_t>(call.group)],
                                                    static_cast<std::int32_t>(i));
            }
            if (!on_stream(op.kind) && timeline.end_ns[i] > timeline.issued_ns[i]) {
                held = static_cast<std::int32_t>(i);
            }
        }
    }

    std::vector<ExposedWait> pauses() {
        std::vector<ExposedWait> out;
        std::int64_t free_since = 0;
        bool first = true;
        for (std::size_t i = 0; i < schedule_.ops.size(); ++i) {
            const Op& op = schedule_.ops[i];
            if (!on_stream(op.kind) || op.stream != Stream::compute) {
                continue;
            }
            const auto index = static_cast<std::int32_t>(i);
            const bool works = works_on_device(op.kind);
            const std::int64_t resumed = works ? time_.start_ns[i] : time_.end_ns[i];
            if (!first && resumed > free_since) {
                parts_.clear();
                explain(index, free_since, resumed);
                std::ranges::reverse(parts_);
                out.insert(out.end(), parts_.begin(), parts_.end());
            }
            first = false;
            free_since = std::max(free_since, time_.end_ns[i]);
        }
        return out;
    }

private:
    struct Before {
        std::int32_t lane = none;          // on the same stream
        std::int32_t communicator = none;  // of the same group
        std::int32_t held = none;          // the last operation that stopped the host
    };

    std::int64_t end(std::int32_t op) const {
        return op == none ? 0 : time_.end_ns[static_cast<std::size_t>(op)];
    }

    void add(Cause cause, std::int32_t culprit, std::int64_t begin, std::int64_t until) {
        if (until <= begin) {
            return;
        }
        if (!parts_.empty() && parts_.back().cause == cause && parts_.back().culprit == culprit) {
            parts_.back().start_ns = begin;
            return;
        }
        parts_.push_back(
            {.op = waiting_, .culprit = culprit, .cause = cause, .start_ns = begin, .end_ns = until});
    }

    /// The host was late from `begin` to `until`: where it was held, by what held it.
    void blame_host(std::int32_t issued, std::int64_t begin, std::int64_t until) {
        std::int32_t held = before_[static_cast<std::size_t>(issued)].held;
        while (until > begin) {
            if (held == none || end(held) <= begin) {
                add(Cause::host, none, begin, until);
                return;
            }
            const auto at = static_cast<std::size_t>(held);
            const std::int64_t held_until = std::clamp(end(held), begin, until);
            const std::int64_t held_since = std::clamp(time_.issued_ns[at], begin, until);
            const bool limiter = schedule_.ops[at].kind == OpKind::block;
            add(Cause::host, none, held_until, until);
            add(limiter ? Cause::limiter : Cause::memory, held, held_since, held_until);
            until = held_since;
            held = before_[at].held;
        }
    }

    void explain(std::int32_t waiting, std::int64_t begin, std::int64_t until) {
        waiting_ = waiting;
        std::int32_t op = waiting;
        while (until > begin && op != none) {
            const auto at = static_cast<std::size_t>(op);
            const OpKind kind = schedule_.ops[at].kind;
            if (kind == OpKind::wait && schedule_.ops[at].target >= 0 &&
                end(schedule_.ops[at].target) >= time_.start_ns[at]) {
                op = schedule_.ops[at].target;
                const std::int64_t event = std::max(begin, end(op));
                add(Cause::latency, none, event, until);
                until = std::min(until, event);
                continue;
            }
            if (works_on_device(kind) && op != waiting) {
                const std::int64_t since = std::max(begin, time_.start_ns[at]);
                add(cause_of(schedule_, schedule_.ops[at]), op, since, until);
                until = std::min(until, since);
            } else if (kind == OpKind::wait) {
                // The event had passed, or there was none: at most its latency is left.
                const std::int64_t since = std::max(begin, time_.start_ns[at]);
                add(Cause::latency, none, since, until);
                until = std::min(until, since);
            }
            op = until > begin ? step_back(op, begin, until) : none;
        }
        add(Cause::latency, none, begin, until);
    }

    /// What `op` could not start before, latest first. Takes the host's part off `until`; returns the
    /// operation that explains the rest.
    std::int32_t step_back(std::int32_t op, std::int64_t begin, std::int64_t& until) {
        const auto at = static_cast<std::size_t>(op);
        const std::int32_t on_lane = before_[at].lane;
        const std::int32_t on_wire = before_[at].communicator;
        const std::int32_t device = end(on_wire) > end(on_lane) ? on_wire : on_lane;
        const std::int64_t device_end = std::max(begin, end(device));
        const std::int64_t issued = std::clamp(time_.issued_ns[at], begin, until);
        if (issued > device_end) {
            add(Cause::latency, none, issued, until);
            blame_host(op, device_end, issued);
            until = device_end;
        } else if (device_end < until) {
            add(Cause::latency, none, device_end, until);
            until = device_end;
        }
        return device;
    }

    const Schedule& schedule_;
    const Timeline& time_;
    std::vector<Before> before_;
    std::vector<ExposedWait> parts_;
    std::int32_t waiting_ = none;
};

}  // namespace

std::vector<ExposedWait> exposed_waits(const Schedule& schedule, const Timeline& timeline) {
    return Explanation(schedule, timeline).pauses();
}

std::vector<IterationTime> iteration_times(const Schedule& schedule, const Timeline& timeline,
                                           std::span<const ExposedWait> waits) {
    std::vector<IterationTime> times;
    std::int64_t latest = 0;
    std::size_t op = 0;
    const auto run_to = [&](std::size_t end) {
        for (; op < end; ++op) {
            latest = std::max(latest, timeline.end_ns[op]);
        }
        return latest;
    };
    for (std::size_t k = 0; k < schedule.iteration_begin.size(); ++k) {
        const std::int64_t begin = run_to(static_cast<std::size_t>(schedule.iteration_begin[k]));
        const bool last = k + 1 == schedule.iteration_begin.size();
        const std::int64_t end =
            run_to(last ? schedule.ops.size() : static_cast<std::size_t>(schedule.iteration_begin[k + 1]));
        times.push_back({.begin_ns = begin, .end_ns = end});
    }
    for (const ExposedWait& wait : waits) {
        for (IterationTime& time : times) {
            const std::int64_t ns =
                std::min(wait.end_ns, time.end_ns) - std::max(wait.start_ns, time.begin_ns);
            if (ns <= 0) {
                continue;
            }
            time.waiting_ns += ns;
            time.exposed_ns += is_collective(wait.cause) ? ns : 0;
        }
    }
    return times;
}

}  // namespace fsdplan
