#include <algorithm>
#include <array>
#include <cmath>

#include "fsdplan/simulate.hpp"
#include "simulate/busy_times.hpp"
#include "simulate/lanes.hpp"

namespace fsdplan {
namespace {

struct Traits {
    bool on_host = false;        // occupies the host in place of a stream
    bool works_on_host = false;  // … and its own time passes there
    bool waits = false;
    bool slows = false;  // while a collective runs
};

constexpr std::array<Traits, op_kind_count> kind_traits = [] {
    std::array<Traits, op_kind_count> traits{};
    for (std::size_t i = 0; i < op_kind_count; ++i) {
        const auto kind = static_cast<OpKind>(i);
        traits[i] = {.on_host = !on_stream(kind),
                     .works_on_host = !on_stream(kind) && kind != OpKind::block,
                     .waits = fsdplan::waits(kind),
                     .slows = kind == OpKind::compute || kind == OpKind::copy};
    }
    return traits;
}();

/// One pass in the order in which the host issues. What it hands to the compute stream is played only once
/// somebody waits for it: by then the collectives are known that run meanwhile, for the ones that are issued
/// later come behind those on their communicator, or behind what they wait for.
class Player {
public:
    Player(const Schedule& schedule, const OpTimes& times, double speed, Timeline& out)
        : schedule_(schedule), times_(times), speed_(speed), out_(out) {
        const std::size_t count = schedule.ops.size();
        out_.issued_ns.resize(count);
        out_.start_ns.resize(count);
        out_.end_ns.resize(count);
        late_.reserve(count);
    }

    void run() {
        for (std::size_t i = 0; i < schedule_.ops.size(); ++i) {
            const Op& op = schedule_.ops[i];
            if (kind_traits[static_cast<std::size_t>(op.kind)].on_host) {
                on_host(i);
                continue;
            }
            host_ += times_.host_ns[i];
            out_.issued_ns[i] = host_;
            if (op.stream != Stream::compute) {
                on_stream(i);
                continue;
            }
            late_.push_back(static_cast<std::int32_t>(i));
            if (op.kind == OpKind::collective) {
                catch_up(static_cast<std::int32_t>(i));
            }
        }
        catch_up(static_cast<std::int32_t>(schedule_.ops.size()));
    }

private:
    /// Plays the compute stream up to this operation.
    void catch_up(std::int32_t op) {
        for (; played_ < late_.size() && late_[played_] <= op; ++played_) {
            on_stream(static_cast<std::size_t>(late_[played_]));
        }
    }

    /// When a wait or a block for this operation may go on.
    std::int64_t released_at(std::size_t i, std::int64_t now) {
        const std::int32_t event = schedule_.ops[i].target;
        if (event < 0) {
            return now;
        }
        if (played_ < late_.size() &&
            schedule_.ops[static_cast<std::size_t>(event)].stream == Stream::compute) {
            catch_up(event);
        }
        return out_.end_ns[static_cast<std::size_t>(event)] + times_.device_ns[i];
    }

    // The host's own work starts where the host stood and ends when it is "issued".
    void on_host(std::size_t i) {
        const bool blocks = schedule_.ops[i].kind == OpKind::block;
        const std::int64_t issued = host_ + times_.host_ns[i];
        out_.issued_ns[i] = issued;
        out_.start_ns[i] = blocks ? issued : host_;
        host_ = blocks ? std::max(issued, released_at(i, issued)) : issued + times_.device_ns[i];
        out_.end_ns[i] = host_;
    }

    void on_stream(std::size_t i) {
        const Op& op = schedule_.ops[i];
        std::int64_t& stream = streams_[static_cast<std::size_t>(op.stream)];
        std::int64_t start = std::max(out_.issued_ns[i], stream);
        std::int64_t end = start + times_.device_ns[i];
        const Traits& traits = kind_traits[static_cast<std::size_t>(op.kind)];
        if (traits.slows) {
            end = busy_.end_of(op.stream, start, times_.device_ns[i], speed_);
        } else if (traits.waits) {
            end = std::max(start, released_at(i, start));
        } else if (op.kind == OpKind::collective) {
            const CollectiveCall& call = schedule_.collectives[static_cast<std::size_t>(op.target)];
            std::int64_t& communicator = communicators_[static_cast<std::size_t>(call.group)];
            start = std::max(start, communicator);
            end = start + times_.device_ns[i];
            communicator = end;
            if (speed_ < 1.0 && call.ranks > 1) {
                busy_.add(start, end);
            }
        }
        stream = end;
        out_.start_ns[i] = start;
        out_.end_ns[i] = end;
    }

    const Schedule& schedule_;
    const OpTimes& times_;
    double speed_;
    Timeline& out_;
    std::int64_t host_ = 0;
    std::array<std::int64_t, stream_count> streams_{};
    std::array<std::int64_t, rank_group_count> communicators_{};
    std::vector<std::int32_t> late_;  // operations of the compute stream
    std::size_t played_ = 0;          // … of which the first so many
    BusyTimes busy_;
};

}  // namespace

void play(const Schedule& schedule, const OpTimes& times, double speed, Timeline& out) {
    FSDPLAN_ASSERT(
        times.device_ns.size() == schedule.ops.size() && times.host_ns.size() == schedule.ops.size(),
        "one time an operation");
    FSDPLAN_ASSERT(speed > 0.0 && speed <= 1.0, "a share of the full speed");
    Player(schedule, times, speed, out).run();
}

}  // namespace fsdplan
