#include "schedule/call_graph.hpp"

#include <algorithm>
#include <utility>

namespace fsdplan {
namespace {

void add_once(std::vector<std::int32_t>& list, std::int32_t value) {
    if (std::ranges::find(list, value) == list.end()) {
        list.push_back(value);
    }
}

}  // namespace

CallGraph::CallGraph(const ForwardProgram& program, const CallBorders& borders,
                     std::span<const std::int32_t> unit_of_call, const ActivationCheckpointing& checkpointing,
                     Tape& tape)
    : program_(program),
      borders_(borders),
      unit_of_call_(unit_of_call),
      tape_(tape),
      around_units_(checkpointing.placement == ActivationCheckpointing::Placement::outside) {}

void CallGraph::clear() {
    const std::size_t calls = program_.calls.size();
    result_.assign(calls, -1);
    output_.assign(calls, -1);
    inputs_.assign(calls, -1);
}

bool CallGraph::any_has_gradient(std::span<const std::int32_t> leaves) const {
    return std::ranges::any_of(leaves, [&](std::int32_t leaf) { return result_[index(leaf)] >= 0; });
}

bool CallGraph::reads_grad(std::int32_t leaf) const {
    return any_has_gradient(program_.sources(leaf));
}

bool CallGraph::output_requires_grad(std::int32_t call) const {
    return any_has_gradient(borders_.results[index(call)]);
}

bool CallGraph::has_grad_inputs(std::int32_t call) const {
    return any_has_gradient(borders_.sources[index(call)]);
}

std::vector<std::int32_t> CallGraph::input_nodes(std::int32_t call) const {
    std::vector<std::int32_t> nodes;
    for (std::int32_t reader = call; reader < program_.calls[index(call)].end; ++reader) {
        std::vector<std::int32_t> read;
        for (const std::int32_t source : program_.sources(reader)) {
            const std::int32_t to = program_.inside(source, call) ? -1 : target(source, reader);
            if (to >= 0) {
                add_once(read, to);
            }
        }
        // What reaches a leaf through another tensor that it reads (a residual stream) is no tensor of its
        // own.
        for (const std::int32_t node : read) {
            const bool behind = std::ranges::any_of(
                read, [&](std::int32_t other) { return other > node && tape_.reaches(other, node); });
            if (!behind) {
                add_once(nodes, node);
            }
        }
    }
    return nodes;
}

std::int32_t CallGraph::add_leaf(std::int32_t leaf) {
    const std::int32_t node = tape_.add(Tape::Kind::compute, leaf);
    result_[index(leaf)] = node;
    for (const std::int32_t source : program_.sources(leaf)) {
        read(node, leaf, source, true);
    }
    return node;
}

void CallGraph::add_reentrant(std::int32_t region) {
    if (!has_grad_inputs(region)) {
        return;
    }
    const std::int32_t node = tape_.add(Tape::Kind::recompute, region);
    for (const std::int32_t source : borders_.sources[index(region)]) {
        read(node, region, source, !around_units_);
    }
    for (std::int32_t leaf = region; leaf < program_.calls[index(region)].end; ++leaf) {
        if (program_.calls[index(leaf)].leaf) {
            result_[index(leaf)] = node;
        }
    }
}

void CallGraph::add_output(std::int32_t call, std::int32_t loss) {
    if (!output_requires_grad(call)) {
        return;
    }
    std::int32_t node = loss >= 0 ? -1 : shared_output(call);
    if (node < 0) {
        node = tape_.add(Tape::Kind::output, call);
        if (loss >= 0) {
            tape_.edge(node, loss);
        } else {
            add_edges(node, borders_.results[index(call)], call);
        }
    }
    output_[index(call)] = node;
}

// An output that is the very tensor that an inner unit returned shares its node: hooks then run in the order
// in which they were registered, the inner unit's first.
std::int32_t CallGraph::shared_output(std::int32_t call) const {
    const std::vector<std::int32_t>& results = borders_.results[index(call)];
    if (results.size() != 1) {
        return -1;
    }
    for (std::int32_t inner = call + 1; inner <= results.front(); ++inner) {
        if (output_[index(inner)] >= 0 && program_.inside(results.front(), inner) &&
            borders_.results[index(inner)] == results) {
            return output_[index(inner)];
        }
    }
    return -1;
}

std::int32_t CallGraph::add_loss(std::int32_t reader) {
    const std::int32_t node = tape_.add(Tape::Kind::loss, 0);
    add_edges(node, program_.output_from, reader);
    return node;
}

std::int32_t CallGraph::add_root(std::int32_t region) {
    const std::int32_t root = tape_.add(Tape::Kind::root, region);
    for (const std::int32_t result : borders_.results[index(region)]) {
        std::int32_t to = target(result, region);
        if (around_units_ && is_unit_call(region) && output_[index(region)] >= 0) {
            to = output_[index(region)];
        }
        if (to >= 0) {
            tape_.edge(root, to);
        }
    }
    return root;
}

std::int32_t CallGraph::set_border(std::int32_t region) {
    return std::exchange(border_, region);
}

// To what `reader` sees of the leaves' results.
void CallGraph::add_edges(std::int32_t node, std::span<const std::int32_t> leaves, std::int32_t reader) {
    for (const std::int32_t leaf : leaves) {
        const std::int32_t to = target(leaf, reader);
        if (to >= 0) {
            tape_.edge(node, to);
        }
    }
}

// Node of the tensor through which `reader` sees a leaf's result: the output of the outermost unit around the
// leaf that has ended by then. Reader -1 is the loss.
std::int32_t CallGraph::target(std::int32_t source, std::int32_t reader) const {
    std::int32_t to = result_[index(source)];
    if (to < 0) {
        return -1;
    }
    const auto ended = [&](std::int32_t c) { return reader < 0 || !program_.inside(reader, c); };
    for (std::int32_t c = source; c >= 0 && ended(c); c = program_.calls[index(c)].parent) {
        if (is_unit_call(c) && output_[index(c)] >= 0) {
            to = output_[index(c)];
        }
    }
    return to;
}

// The gradient of what `reader` reads of `source` flows from `node` through the inputs of the units around
// it.
void CallGraph::read(std::int32_t node, std::int32_t reader, std::int32_t source, bool inside_reader_unit) {
    if (result_[index(source)] < 0) {
        return;
    }
    std::int32_t from = node;
    const std::int32_t innermost = inside_reader_unit ? reader : program_.calls[index(reader)].parent;
    for (std::int32_t c = innermost; c >= 0 && !program_.inside(source, c);
         c = program_.calls[index(c)].parent) {
        const bool at_border = c == border_;  // the inputs of a reentrant region are leaves of its own graph
        const bool unit_outside = at_border && !around_units_;
        if (is_unit_call(c) && inputs_[index(c)] >= 0 && !unit_outside) {
            tape_.edge(from, inputs_[index(c)]);
            from = inputs_[index(c)];
        }
        if (at_border) {
            return;
        }
    }
    tape_.edge(from, target(source, reader));
}

}  // namespace fsdplan
