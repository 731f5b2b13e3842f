#include <algorithm>
#include <array>

#include "fsdplan/simulate.hpp"
#include "simulate/lanes.hpp"

namespace fsdplan {
namespace {

// Where the clock of an operation of this kind stands; streams are added to 0.
struct Traits {
    std::uint8_t lane_if_host = 0;
    bool waits = false;
    bool works_on_host = false;  // its own time passes on the host
};

constexpr std::array<Traits, op_kind_count> kind_traits = [] {
    std::array<Traits, op_kind_count> traits{};
    for (std::size_t i = 0; i < op_kind_count; ++i) {
        const auto kind = static_cast<OpKind>(i);
        traits[i] = {.lane_if_host = static_cast<std::uint8_t>(on_stream(kind) ? 0 : host_lane),
                     .waits = fsdplan::waits(kind),
                     .works_on_host = !on_stream(kind) && kind != OpKind::block};
    }
    return traits;
}();

}  // namespace

void play(const Schedule& schedule, const OpTimes& times, Timeline& out) {
    const std::size_t count = schedule.ops.size();
    FSDPLAN_ASSERT(times.device_ns.size() == count && times.host_ns.size() == count, "one time an operation");
    out.issued_ns.resize(count);
    out.start_ns.resize(count);
    out.end_ns.resize(count);
    const Op* const ops = schedule.ops.data();
    const std::int64_t* const device_ns = times.device_ns.data();
    const std::int64_t* const host_ns = times.host_ns.data();
    std::int64_t* const issued_ns = out.issued_ns.data();
    std::int64_t* const start_ns = out.start_ns.data();
    std::int64_t* const end_ns = out.end_ns.data();
    std::array<std::int64_t, lane_count> clock{};
    std::array<std::int64_t, rank_group_count> communicator{};

    // One formula for all kinds, so that the processor has little to guess: an operation starts when it is
    // issued and its lane is free; a wait ends no earlier than its event. The host's own work starts where
    // the host stood and ends when it is "issued".
    for (std::size_t i = 0; i < count; ++i) {
        const Op& op = ops[i];
        const Traits traits = kind_traits[static_cast<std::size_t>(op.kind)];
        const std::size_t lane = traits.lane_if_host != 0 ? host_lane : static_cast<std::size_t>(op.stream);
        const std::int64_t host_before = clock[host_lane];
        const std::int64_t issued = host_before + host_ns[i];
        std::int64_t start = std::max(traits.works_on_host ? host_before : issued, clock[lane]);
        std::int64_t ready = start + device_ns[i];
        if (traits.waits) {
            ready = op.target >= 0 ? end_ns[op.target] + device_ns[i] : start;
        } else if (op.kind == OpKind::collective) {
            const auto group =
                static_cast<std::size_t>(schedule.collectives[static_cast<std::size_t>(op.target)].group);
            start = std::max(start, communicator[group]);
            ready = start + device_ns[i];
            communicator[group] = ready;
        }
        const std::int64_t end = std::max({start, issued, ready});
        clock[host_lane] = issued;
        clock[lane] = end;
        issued_ns[i] = issued;
        start_ns[i] = start;
        end_ns[i] = end;
    }
}

}  // namespace fsdplan
