#include "schedule/kept_operators.hpp"

#include <algorithm>
#include <string_view>

namespace fsdplan {
namespace {

using Kind = MemoryEvent::Kind;

std::size_t index(std::int32_t i) {
    return static_cast<std::size_t>(i);
}

/// "mm" of "aten.mm.default" as of "mm".
std::string_view plain_name(std::string_view name) {
    constexpr std::string_view space = "aten.";
    if (name.starts_with(space)) {
        name.remove_prefix(space.size());
    }
    return name.substr(0, name.find('.'));
}

class Selection {
public:
    Selection(const OperatorGraph& graph, KeptOperators& out) : graph_(graph), out_(out) {}

    void begin_region() { products_ = 0; }

    void visit(std::span<const MemoryEvent> events) {
        for (std::size_t i = 0; i < events.size(); ++i) {
            if (events[i].kind == Kind::run && is_kept(graph_.operators[index(events[i].index)])) {
                out_.operators[index(events[i].index)] = 1;
                keep_results(events, i);
            }
        }
    }

private:
    bool is_kept(const Operator& op) {
        if (op.kind != Operator::Kind::other) {
            return true;
        }
        return plain_name(graph_.names[index(op.name)]) == "mm" && ++products_ % 2 == 1;
    }

    // What is allocated just before the operator and, where there are several results, just behind it.
    void keep_results(std::span<const MemoryEvent> events, std::size_t run) {
        for (std::size_t i = run; i-- > 0 && events[i].kind == Kind::allocate;) {
            out_.storages[index(events[i].index)] = 1;
        }
        if (graph_.operators[index(events[run].index)].kind == Operator::Kind::other) {
            return;
        }
        for (std::size_t i = run + 1; i < events.size() && events[i].kind == Kind::allocate; ++i) {
            out_.storages[index(events[i].index)] = 1;
        }
    }

    const OperatorGraph& graph_;
    KeptOperators& out_;
    int products_ = 0;
};

}  // namespace

KeptOperators kept_operators(const OperatorGraph& graph, const ForwardProgram& program,
                             const ModuleTree& tree, const ActivationCheckpointing& checkpointing) {
    KeptOperators out{.operators = std::vector<char>(graph.operators.size(), 0),
                      .storages = std::vector<char>(graph.storages.size(), 0)};
    if (checkpointing.mode != ActivationCheckpointing::Mode::selective) {
        return out;
    }
    std::vector<ModuleIndex> regions = checkpointing.regions(tree);
    std::ranges::sort(regions);
    Selection selection(graph, out);
    const auto calls = static_cast<std::int32_t>(program.calls.size());
    for (std::int32_t c = 0; c < calls;) {
        const ForwardProgram::Call& call = program.calls[index(c)];
        if (!std::ranges::binary_search(regions, call.module)) {
            ++c;
            continue;
        }
        selection.begin_region();
        for (; c < call.end; ++c) {
            selection.visit(graph.forward_of(index(c)));
        }
    }
    return out;
}

}  // namespace fsdplan
