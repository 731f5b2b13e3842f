#include "operators/parts.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

std::size_t at(std::int32_t i) {
    return static_cast<std::size_t>(i);
}

bool is_around(std::span<const NestedCall> calls, std::int32_t outer, std::int32_t inner) {
    return outer >= 0 && inner >= outer && inner < calls[at(outer)].end;
}

}  // namespace

void cut_into_parts(OperatorGraph& graph, std::span<const NestedCall> calls,
                    std::span<const std::int32_t> forward_call, std::span<const std::int32_t> backward_of) {
    const auto count = static_cast<std::int32_t>(calls.size());
    // Of each leaf, the event at which its part begins; the loss has one too.
    std::vector<std::int32_t> begin(calls.size() + 1, -1);
    std::int32_t leaf = -1;     // whose part it is
    std::int32_t pending = -1;  // since when events wait for the leaf that they belong to
    for (std::size_t i = 0; i < forward_call.size(); ++i) {
        const std::int32_t call = forward_call[i];
        const auto event = static_cast<std::int32_t>(i);
        const bool starts = call >= 0 && calls[at(call)].leaf && call != leaf;
        if (starts || call < 0) {
            const std::int32_t part = call < 0 ? count : call;
            if (part != leaf && begin[at(part)] < 0) {
                begin[at(part)] = pending >= 0 ? pending : event;
                leaf = part;
            }
            pending = -1;
        } else if (call != leaf && !(leaf >= 0 && leaf < count && is_around(calls, call, leaf))) {
            pending = pending < 0 ? event : pending;
        }
    }
    graph.forward_begin.assign(calls.size() + 2, static_cast<std::int32_t>(graph.forward.size()));
    std::int32_t next = static_cast<std::int32_t>(graph.forward.size());
    for (std::size_t c = calls.size() + 1; c-- > 0;) {
        next = begin[c] >= 0 ? std::min(begin[c], next) : next;
        graph.forward_begin[c] = next;
    }
    graph.forward_begin[0] = 0;

    const auto part_of = [&](std::int32_t event) {
        const auto after =
            std::upper_bound(graph.forward_begin.begin(), graph.forward_begin.end() - 1, event);
        return static_cast<std::int32_t>(after - graph.forward_begin.begin()) - 1;
    };
    graph.backward_begin.assign(calls.size() + 1, 0);
    graph.backward_end.assign(calls.size() + 1, 0);
    std::int32_t part = count;
    for (std::size_t i = 0; i < backward_of.size(); ++i) {
        const std::int32_t wanted = std::min(part, part_of(backward_of[i]));
        if (wanted != part) {
            graph.backward_end[at(part)] = static_cast<std::int32_t>(i);
            graph.backward_begin[at(wanted)] = static_cast<std::int32_t>(i);
            part = wanted;
        }
    }
    graph.backward_end[at(part)] = static_cast<std::int32_t>(graph.backward.size());
}

void pass_what_is_held(OperatorGraph& graph) {
    using Kind = MemoryEvent::Kind;
    std::vector<std::int32_t> held;
    graph.input_begin.assign(1, 0);
    graph.input.clear();
    for (std::size_t c = 0; c < graph.calls.size(); ++c) {
        graph.input.insert(graph.input.end(), held.begin(), held.end());
        graph.input_begin.push_back(static_cast<std::int32_t>(graph.input.size()));
        for (const MemoryEvent& event : graph.forward_of(c)) {
            if (event.kind == Kind::allocate) {
                held.push_back(event.index);
            } else if (event.kind == Kind::drop) {
                std::erase(held, event.index);
            }
        }
    }
}

}  // namespace fsdplan
