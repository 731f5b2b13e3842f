#include <algorithm>
#include <array>
#include <cmath>

#include "fsdplan/simulate.hpp"
#include "simulate/lanes.hpp"

namespace fsdplan {
namespace {

struct Span {
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

/// When collectives ran, whatever stream they ran on: disjoint, in order of time.
std::vector<Span> busy_with_collectives(const Schedule& schedule, const Timeline& timeline) {
    std::vector<Span> spans;
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
        const Op& op = schedule.ops[i];
        if (op.kind == OpKind::collective &&
            schedule.collectives[static_cast<std::size_t>(op.target)].ranks > 1) {
            spans.push_back({timeline.start_ns[i], timeline.end_ns[i]});
        }
    }
    std::ranges::sort(spans, {}, &Span::begin);
    std::size_t kept = 0;
    for (const Span& span : spans) {
        if (kept > 0 && span.begin <= spans[kept - 1].end) {
            spans[kept - 1].end = std::max(spans[kept - 1].end, span.end);
        } else {
            spans[kept++] = span;
        }
    }
    spans.resize(kept);
    return spans;
}

}  // namespace

void lose_to_collectives(const Schedule& schedule, const Timeline& timeline, double speed, OpTimes& times) {
    const std::vector<Span> spans = busy_with_collectives(schedule, timeline);
    // Work of one stream runs in the order of its operations, so that each stream looks at a span once.
    std::array<std::size_t, stream_count> at{};
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
        const Op& op = schedule.ops[i];
        if (op.kind != OpKind::compute && op.kind != OpKind::copy) {
            continue;
        }
        const std::int64_t begin = timeline.start_ns[i];
        const std::int64_t end = timeline.end_ns[i];
        std::size_t& next = at[static_cast<std::size_t>(op.stream)];
        while (next < spans.size() && spans[next].end <= begin) {
            ++next;
        }
        std::int64_t shared = 0;
        for (std::size_t s = next; s < spans.size() && spans[s].begin < end; ++s) {
            shared += std::min(end, spans[s].end) - std::max(begin, spans[s].begin);
        }
        times.device_ns[i] += std::llround((1.0 - speed) * static_cast<double>(shared));
    }
}

void play_with_overlap(const Schedule& schedule, double speed, OpTimes& times, Timeline& out) {
    play(schedule, times, out);
    if (speed < 1.0) {
        lose_to_collectives(schedule, out, speed, times);
        play(schedule, times, out);
    }
}

}  // namespace fsdplan
