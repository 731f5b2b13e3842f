#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fsdplan/job.hpp"
#include "schedule/call_borders.hpp"
#include "schedule/forward_program.hpp"
#include "schedule/tape.hpp"

// The graph that autograd builds in one forward, call by call.
namespace fsdplan {

/// Which nodes of a tape stand for the calls of a forward, and how gradients flow between them. Units and
/// regions have nodes of their own for what crosses their borders.
class CallGraph {
public:
    /// All that is given must stay. `unit_of_call`: -1 where the call is no unit's.
    CallGraph(const ForwardProgram& program, const CallBorders& borders,
              std::span<const std::int32_t> unit_of_call, const ActivationCheckpointing& checkpointing,
              Tape& tape);

    /// Another forward begins.
    void clear();

    /// True when one of a leaf's sources has a gradient to wait for.
    bool reads_grad(std::int32_t leaf) const;
    /// True when one of the tensors that a call of a unit or region returns has.
    bool output_requires_grad(std::int32_t call) const;
    /// True when a gradient flows out of such a call through its inputs.
    bool has_grad_inputs(std::int32_t call) const;
    /// Nodes of the tensors that a call gets from outside and that have gradients.
    std::vector<std::int32_t> input_nodes(std::int32_t call) const;
    /// Node of a unit's output; -1: none.
    std::int32_t output_node(std::int32_t call) const { return output_[index(call)]; }
    /// Puts a node between a unit's computations and its inputs.
    void set_inputs_node(std::int32_t call, std::int32_t node) { inputs_[index(call)] = node; }

    /// The leaf's result has no gradient.
    void detach(std::int32_t leaf) { result_[index(leaf)] = -1; }
    /// A differentiable leaf computes; returns its node, which has edges to its sources.
    std::int32_t add_leaf(std::int32_t leaf);
    /// The forward of a reentrant region left no graph; one node stands for it.
    void add_reentrant(std::int32_t region);
    /// The output of a unit, where it has a gradient. `loss`: the node of the loss, if that is what the unit
    /// returns; otherwise -1.
    void add_output(std::int32_t call, std::int32_t loss);
    /// What backward starts from; returns its node. `reader`: the call that computes it; -1: the loop itself.
    std::int32_t add_loss(std::int32_t reader);
    /// The same for a reentrant region that has been recomputed.
    std::int32_t add_root(std::int32_t region);

    /// A reentrant region is recomputed: its inputs are leaves of its own graph. Returns the region that was
    /// before, to be given back at the end; -1: none.
    std::int32_t set_border(std::int32_t region);

private:
    static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
    bool any_has_gradient(std::span<const std::int32_t> leaves) const;
    std::int32_t shared_output(std::int32_t call) const;
    bool is_unit_call(std::int32_t call) const { return unit_of_call_[index(call)] >= 0; }
    void add_edges(std::int32_t node, std::span<const std::int32_t> leaves, std::int32_t reader);
    std::int32_t target(std::int32_t source, std::int32_t reader) const;
    void read(std::int32_t node, std::int32_t reader, std::int32_t source, bool inside_reader_unit);

    const ForwardProgram& program_;
    const CallBorders& borders_;
    std::span<const std::int32_t> unit_of_call_;
    Tape& tape_;
    const bool around_units_;           // checkpoints hold units, not the other way
    std::vector<std::int32_t> result_;  // node of a leaf's result
    std::vector<std::int32_t> output_;
    std::vector<std::int32_t> inputs_;
    std::int32_t border_ = -1;
};

}  // namespace fsdplan
