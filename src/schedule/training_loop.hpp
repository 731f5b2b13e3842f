#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "schedule/call_borders.hpp"
#include "schedule/call_graph.hpp"
#include "schedule/computation.hpp"
#include "schedule/emitter.hpp"
#include "schedule/forward_program.hpp"
#include "schedule/tape.hpp"

// The training loop that a lowering lives in: it calls the modules, plays autograd and asks the runtime at
// the hooks that PyTorch gives it.
namespace fsdplan {

class TrainingLoop;

/// What a runtime does at its hooks. Units are numbered as in TrainingLoop::units.
class UnitRuntime {
public:
    UnitRuntime() = default;
    UnitRuntime(const UnitRuntime&) = delete;
    UnitRuntime& operator=(const UnitRuntime&) = delete;
    UnitRuntime(UnitRuntime&&) = delete;
    UnitRuntime& operator=(UnitRuntime&&) = delete;
    virtual ~UnitRuntime() = default;

    /// Allocates what lives as long as the training.
    virtual void begin() = 0;
    virtual void begin_microbatch(bool last) = 0;
    virtual void pre_forward(std::int32_t unit, std::int32_t call) = 0;
    virtual void post_forward(std::int32_t unit, std::int32_t call) = 0;
    virtual void hook(const Tape::Hook& hook) = 0;
    /// A node of kind inputs, split or accumulate runs.
    virtual void node(const Tape::Node& node) = 0;
    /// Autograd has gone through the whole graph.
    virtual void end_of_backward() = 0;
    virtual void clip() = 0;
    virtual void optimizer_step() = 0;
    virtual void zero_grad() = 0;

    /// Whether a computation with this parameter is differentiable.
    virtual bool tracks(TensorIndex t) const = 0;
    /// The node to which the gradient of a use of `t` flows now; -1: to nothing that the runtime minds.
    virtual std::int32_t gradient_node(TensorIndex t) = 0;
    /// Backward has computed (a part of) its gradient.
    virtual void gradient_computed(TensorIndex t) = 0;
};

/// A unit as the loop sees it.
struct LoopUnit {
    const Unit* plan = nullptr;
    std::vector<ModuleIndex> modules;  ///< in the order of the tree
};

class TrainingLoop {
public:
    TrainingLoop(const LoweringInput& input, Schedule& out);
    TrainingLoop(const TrainingLoop&) = delete;  // its parts refer to one another
    TrainingLoop& operator=(const TrainingLoop&) = delete;

    void run(UnitRuntime& runtime);

    // For runtimes.
    const ModuleTree& tree;
    const TrainingJob& job;
    const ForwardProgram program;
    const std::vector<LoopUnit> units;  ///< root first, in the order of the tree
    Emitter emit;
    Tape tape;

    bool grad_enabled() const { return grad_enabled_; }
    bool in_backward() const { return in_backward_; }
    /// True when the output of a unit's call has a gradient to wait for.
    bool output_requires_grad(std::int32_t call) const { return graph_.output_requires_grad(call); }
    /// The node of that output, to hang hooks on; -1: none.
    std::int32_t output_node(std::int32_t call) const { return graph_.output_node(call); }
    /// True when a gradient flows out of the call through its inputs.
    bool has_grad_inputs(std::int32_t call) const { return graph_.has_grad_inputs(call); }
    /// Nodes of the tensors that the call gets from outside and that have gradients.
    std::vector<std::int32_t> input_nodes(std::int32_t call) const { return graph_.input_nodes(call); }
    /// Puts a node between the call's computations and its inputs.
    void set_inputs_node(std::int32_t call, std::int32_t node) { graph_.set_inputs_node(call, node); }
    /// The unit that manages a parameter; -1: none.
    std::int32_t unit_of(TensorIndex t) const { return unit_of_tensor_[at(t)]; }
    /// The model's own floating-point buffers go to another dtype.
    void cast_buffers(DType dtype);
    /// Of the GPU.
    std::int64_t multiprocessors() const { return input_.multiprocessors; }
    /// Something of the user's own happens here that nobody has priced.
    void user_code() { computation_->user_code(); }

private:
    friend struct BackwardVisitor;
    static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

    void reserve();
    void step();
    void forward_backward();
    bool walk(std::int32_t call);
    bool body(std::int32_t call, bool with_unit, bool with_marks);
    bool children(std::int32_t call);
    void begin_unit(std::int32_t unit, std::int32_t call);
    void end_unit(std::int32_t unit, std::int32_t call);
    void compute(std::int32_t call);
    void run_node(std::int32_t node);
    void compute_backward(std::int32_t call);
    void gradient_computed(TensorIndex t);
    void recompute(std::int32_t region);
    void recompute_reentrant(std::int32_t region);
    void hold_loss();
    void end_output(OutputLife life);
    void compute_loss(std::int32_t reader);

    const LoweringInput& input_;
    Schedule& out_;
    UnitRuntime* runtime_ = nullptr;
    std::unique_ptr<Computation> computation_;
    std::vector<std::int32_t> unit_of_tensor_;
    std::vector<std::int32_t> unit_of_call_;
    std::vector<std::int32_t> modules_left_;  // of a unit with several modules, in this forward
    std::vector<char> takes_gradients_;       // calls whose result does, whatever it comes from
    bool loss_in_model_;

    CheckpointedRegions regions_;
    const CallBorders borders_;

    // Of the current forward.
    CallGraph graph_;
    std::vector<char> recomputed_;      // regions, by call
    std::vector<std::int32_t> losses_;  // of this forward and of the one before, in turn
    std::size_t loss_now_ = 0;
    std::int32_t loss_node_ = -1;

    bool grad_enabled_ = true;
    bool in_backward_ = false;
    bool throwaway_ = false;  // a recompute whose graph nobody goes through
    std::int32_t stop_at_ = -1;
    std::int32_t iteration_ = 0;
    std::vector<std::int32_t> module_buffers_;
};

}  // namespace fsdplan
