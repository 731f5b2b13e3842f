#include "simulate/event_simulator.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>

#include "simulate/lanes.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t unknown = -1;
constexpr std::int64_t full_speed = 1000;

/// Written to be read, not to be fast: nothing here is shared with the array pass but the schedule.
class EventSimulator {
public:
    EventSimulator(const Schedule& schedule, const OpTimes& times, const Contention& contention,
                   MemoryUnderTime* memory, Timeline& out)
        : schedule_(schedule), times_(times), contention_(contention), memory_(memory), out_(out) {
        out_.issued_ns.assign(schedule.ops.size(), unknown);
        out_.start_ns.assign(schedule.ops.size(), unknown);
        out_.end_ns.assign(schedule.ops.size(), unknown);
    }

    void run() {
        while (true) {
            settle();
            const std::int64_t next = next_event();
            if (next == never) {
                break;
            }
            advance(next);
        }
        FSDPLAN_ASSERT(host_op_ == schedule_.ops.size(), "every event is recorded before it is waited for");
    }

private:
    /// Front of a queue: an operation that was issued, perhaps running.
    struct StreamState {
        std::deque<std::size_t> queue;
        bool running = false;
        std::int64_t left = 0;  // work, in nanoseconds at full speed times 1000
    };
    enum class HostState : std::uint8_t { next, busy, blocked, draining, paying };

    const Op& op_at(std::size_t i) const { return schedule_.ops[i]; }

    std::deque<std::size_t>& communicator(std::size_t op) {
        const CollectiveCall& call = schedule_.collectives[static_cast<std::size_t>(op_at(op).target)];
        return communicators_[static_cast<std::size_t>(call.group)];
    }

    /// Does everything that can happen now.
    void settle() {
        bool changed = true;
        while (changed) {
            changed = host_step();
            for (StreamState& stream : streams_) {
                changed = stream_step(stream) || changed;
            }
        }
    }

    /// When a wait or block for this operation may go on; `never` while the event is not recorded.
    std::int64_t released_at(std::size_t i) const {
        const std::int32_t event = op_at(i).target;
        if (event < 0) {
            return now_;
        }
        const std::int64_t recorded = out_.end_ns[static_cast<std::size_t>(event)];
        return recorded == unknown ? never : recorded + times_.device_ns[i];
    }

    void finish(StreamState& stream) {
        const std::size_t i = stream.queue.front();
        out_.end_ns[i] = now_;
        stream.queue.pop_front();
        stream.running = false;
        ++done_[static_cast<std::size_t>(op_at(i).stream)];
    }

    bool stream_step(StreamState& stream) {
        if (stream.queue.empty()) {
            return false;
        }
        const std::size_t i = stream.queue.front();
        const OpKind kind = op_at(i).kind;
        bool changed = false;
        if (out_.start_ns[i] == unknown && (kind != OpKind::collective || communicator(i).front() == i)) {
            out_.start_ns[i] = now_;
            stream.running = works_on_device(kind);
            stream.left = times_.device_ns[i] * full_speed;
            changed = true;
        }
        if (out_.start_ns[i] == unknown) {
            return false;
        }
        const bool over =
            works_on_device(kind) ? stream.left <= 0 : kind == OpKind::record || released_at(i) <= now_;
        if (over) {
            if (kind == OpKind::collective) {
                communicator(i).pop_front();
            }
            finish(stream);
        }
        return changed || over;
    }

    bool idle() const {
        return std::ranges::all_of(streams_, [](const StreamState& s) { return s.queue.empty(); });
    }

    /// The host has spent its time on the operation: work goes to its stream, the rest happens here and now.
    void issue() {
        const std::size_t i = host_op_;
        const Op& op = op_at(i);
        out_.issued_ns[i] = now_;
        if (on_stream(op.kind)) {
            streams_[static_cast<std::size_t>(op.stream)].queue.push_back(i);
            ++issued_[static_cast<std::size_t>(op.stream)];
            if (op.kind == OpKind::collective) {
                communicator(i).push_back(i);
            }
            host_goes_on();
            return;
        }
        if (op.kind == OpKind::block) {
            out_.start_ns[i] = now_;
            host_ = HostState::blocked;
            return;
        }
        const MemoryUnderTime::Effect effect =
            memory_ != nullptr ? memory_->on_host(i, issued_, done_) : MemoryUnderTime::Effect{};
        extra_ns_ = effect.host_ns;
        if (effect.device_must_idle) {
            host_ = HostState::draining;
        } else {
            pay();
        }
    }

    void pay() {
        host_ = HostState::paying;
        host_until_ = now_ + extra_ns_;
    }

    void host_goes_on() {
        ++host_op_;
        host_ = HostState::next;
    }

    bool host_step() {
        if (host_op_ == schedule_.ops.size()) {
            return false;
        }
        switch (host_) {
            case HostState::next:
                host_ = HostState::busy;
                host_until_ = now_ + times_.host_ns[host_op_];
                if (!on_stream(op_at(host_op_).kind) && op_at(host_op_).kind != OpKind::block) {
                    out_.start_ns[host_op_] = now_;
                }
                return true;
            case HostState::busy:
                if (host_until_ > now_) {
                    return false;
                }
                issue();
                return true;
            case HostState::draining:
                if (!idle()) {
                    return false;
                }
                pay();
                return true;
            case HostState::blocked:
                if (released_at(host_op_) > now_) {
                    return false;
                }
                break;
            case HostState::paying:
                if (host_until_ > now_) {
                    return false;
                }
                break;
        }
        out_.end_ns[host_op_] = now_;
        host_goes_on();
        return true;
    }

    bool takes_from_others(std::size_t collective) const {
        return schedule_.collectives[static_cast<std::size_t>(op_at(collective).target)].ranks > 1;
    }

    bool runs_any(bool collective) const {
        return std::ranges::any_of(streams_, [&](const StreamState& s) {
            if (!s.running) {
                return false;
            }
            const OpKind kind = op_at(s.queue.front()).kind;
            return collective ? kind == OpKind::collective && takes_from_others(s.queue.front())
                              : kind == OpKind::compute || kind == OpKind::copy;
        });
    }

    std::int64_t speed(const StreamState& stream) const {
        switch (op_at(stream.queue.front()).kind) {
            case OpKind::compute:
                return runs_any(true) ? contention_.compute_permille : full_speed;
            case OpKind::copy:
                return runs_any(true) ? contention_.copy_permille : full_speed;
            case OpKind::collective:
                return runs_any(false) ? contention_.collective_permille : full_speed;
            default:
                return full_speed;
        }
    }

    std::int64_t next_event() const {
        std::int64_t next = never;
        const auto consider = [&](std::int64_t time) { next = time > now_ ? std::min(next, time) : next; };
        for (const StreamState& stream : streams_) {
            if (stream.running) {
                consider(now_ + ceil_div(stream.left, speed(stream)));
            } else if (!stream.queue.empty() && waits(op_at(stream.queue.front()).kind)) {
                consider(released_at(stream.queue.front()));
            }
        }
        if (host_op_ < schedule_.ops.size()) {
            if (host_ == HostState::busy || host_ == HostState::paying) {
                consider(host_until_);
            } else if (host_ == HostState::blocked) {
                consider(released_at(host_op_));
            }
        }
        return next;
    }

    void advance(std::int64_t next) {
        std::array<std::int64_t, stream_count> speeds{};
        for (std::size_t s = 0; s < stream_count; ++s) {
            speeds[s] = streams_[s].running ? speed(streams_[s]) : 0;
        }
        for (std::size_t s = 0; s < stream_count; ++s) {
            streams_[s].left -= speeds[s] * (next - now_);
        }
        now_ = next;
    }

    const Schedule& schedule_;
    const OpTimes& times_;
    const Contention& contention_;
    MemoryUnderTime* memory_;
    Timeline& out_;
    std::array<StreamState, stream_count> streams_;
    std::array<std::deque<std::size_t>, rank_group_count> communicators_;
    std::array<std::int64_t, stream_count> issued_{};
    std::array<std::int64_t, stream_count> done_{};
    std::int64_t now_ = 0;
    std::size_t host_op_ = 0;
    HostState host_ = HostState::next;
    std::int64_t host_until_ = 0;
    std::int64_t extra_ns_ = 0;
};

}  // namespace

void play_events(const Schedule& schedule, const OpTimes& times, const Contention& contention,
                 MemoryUnderTime* memory, Timeline& out) {
    EventSimulator(schedule, times, contention, memory, out).run();
}

void play_events(const Schedule& schedule, const OpTimes& times, const Contention& contention,
                 Timeline& out) {
    play_events(schedule, times, contention, nullptr, out);
}

Contention usual_contention(const Gpu& gpu) {
    // A ring reads and writes what passes: twice the bus bandwidth, which is about 0.8 of the links'.
    // Collectives lose 5 to 15 % to kernels that saturate the memory.
    constexpr double link_share = 0.8;
    const bool links = gpu.link_bytes_per_s > 0.0;
    const double bus = (links ? gpu.link_bytes_per_s : gpu.pcie_bytes_per_s) * link_share;
    const auto of_memory =
        static_cast<std::int64_t>(1000.0 * std::max(0.5, 1.0 - 2.0 * bus / gpu.memory_bytes_per_s));
    return {.compute_permille = std::llround(1000.0 * gpu.constants.overlap.value),
            .copy_permille = of_memory,
            .collective_permille = 900};
}

}  // namespace fsdplan
