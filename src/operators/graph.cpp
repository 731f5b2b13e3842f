#include "fsdplan/operators.hpp"

namespace fsdplan {
namespace {

template <typename T>
std::span<const T> part_of(const std::vector<T>& list, std::int32_t begin, std::int32_t end) {
    return std::span(list).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

}  // namespace

std::span<const MemoryEvent> OperatorGraph::forward_of(std::size_t part) const {
    return part_of(forward, forward_begin[part], forward_begin[part + 1]);
}

std::span<const MemoryEvent> OperatorGraph::backward_of(std::size_t part) const {
    return part_of(backward, backward_begin[part], backward_end[part]);
}

std::span<const std::int32_t> OperatorGraph::inputs_of(std::size_t call) const {
    return part_of(input, input_begin[call], input_begin[call + 1]);
}

std::string first_fault(const OperatorGraph& graph) {
    using Kind = MemoryEvent::Kind;
    enum class State : std::uint8_t { absent, live, gone };
    std::vector<State> state(graph.storages.size(), State::absent);
    std::vector<std::int32_t> saves(graph.storages.size(), 0);
    const auto fault = [&](const std::vector<MemoryEvent>& events, const char* where) -> std::string {
        for (std::size_t i = 0; i < events.size(); ++i) {
            const MemoryEvent& event = events[i];
            const std::string place = std::string(where) + " event " + std::to_string(i) + ": ";
            const auto of = static_cast<std::size_t>(event.index);
            if (event.kind == Kind::run) {
                if (of >= graph.operators.size()) {
                    return place + "no such operator";
                }
                const std::int32_t shape = graph.operators[of].shape;
                if (shape >= 0 && static_cast<std::size_t>(shape) >= graph.shapes.size()) {
                    return place + "no such shape";
                }
                continue;
            }
            if (event.kind == Kind::gradient) {
                continue;
            }
            if (of >= graph.storages.size()) {
                return place + "no such storage";
            }
            switch (event.kind) {
                case Kind::allocate:
                    if (state[of] != State::absent) {
                        return place + "the storage was allocated before";
                    }
                    state[of] = State::live;
                    break;
                case Kind::drop:
                    if (state[of] != State::live) {
                        return place + "the program does not hold the storage";
                    }
                    state[of] = State::gone;
                    break;
                case Kind::save:
                    if (state[of] == State::absent) {
                        return place + "the storage is not there";
                    }
                    ++saves[of];
                    break;
                case Kind::unpack:
                    if (saves[of] == 0) {
                        return place + "the storage is not saved";
                    }
                    break;
                default:
                    if (--saves[of] < 0) {
                        return place + "the storage is not saved";
                    }
                    break;
            }
        }
        return {};
    };
    std::string found = fault(graph.forward, "forward");
    return found.empty() ? fault(graph.backward, "backward") : found;
}

}  // namespace fsdplan
