#include <algorithm>
#include <array>

#include "fsdplan/simulate.hpp"
#include "simulate/lanes.hpp"

namespace fsdplan {
namespace {

struct Traits {
    bool on_host = false;        // occupies the host in place of a stream
    bool works_on_host = false;  // … and its own time passes there
    bool waits = false;
};

constexpr std::array<Traits, op_kind_count> kind_traits = [] {
    std::array<Traits, op_kind_count> traits{};
    for (std::size_t i = 0; i < op_kind_count; ++i) {
        const auto kind = static_cast<OpKind>(i);
        traits[i] = {.on_host = !on_stream(kind),
                     .works_on_host = !on_stream(kind) && kind != OpKind::block,
                     .waits = fsdplan::waits(kind)};
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
    std::int64_t host = 0;
    std::array<std::int64_t, stream_count> streams{};
    std::array<std::int64_t, rank_group_count> communicator{};

    // One formula for all kinds, so that the processor has little to guess: an operation starts when it is
    // issued and its lane is free; a wait ends no earlier than its event. The host's own work starts where
    // the host stood and ends when it is "issued".
    for (std::size_t i = 0; i < count; ++i) {
        const Op& op = ops[i];
        const Traits& traits = kind_traits[static_cast<std::size_t>(op.kind)];
        std::int64_t& stream = streams[static_cast<std::size_t>(op.stream)];
        const std::int64_t issued = host + host_ns[i];
        std::int64_t start = std::max(traits.works_on_host ? host : issued, traits.on_host ? host : stream);
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
        stream = traits.on_host ? stream : end;
        host = traits.on_host ? end : issued;
        issued_ns[i] = issued;
        start_ns[i] = start;
        end_ns[i] = end;
    }
}

}  // namespace fsdplan
