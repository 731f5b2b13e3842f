#pragma once

#include <vector>

#include "fsdplan/operators.hpp"
#include "schedule/computation.hpp"
#include "schedule/kept_operators.hpp"
#include "schedule/workspaces.hpp"

namespace fsdplan {

/// Plays the parts of an operator graph: memory comes and goes with who holds it, whatever checkpointing
/// makes of the order.
class OperatorComputation final : public Computation {
public:
    /// `program` is that of the calls of `input.operators`.
    OperatorComputation(const LoweringInput& input, const ForwardProgram& program, Emitter& emit);

    void forward(std::int32_t call, Forward how) override;
    void backward(std::int32_t call, const Unpacking& unpacking, const OnGradient& on_gradient) override;
    void loss() override;
    void loss_backward(const OnGradient& on_gradient) override;
    void drop_output() override;
    void keep_inputs(std::int32_t call) override;
    void release_inputs(std::int32_t call) override;
    void drop_recomputed() override;
    std::optional<Saving> saving(std::int32_t call) const override;
    void leave_graph() override;
    void drop_graph() override;
    void user_code() override {}
    bool is_priced() const override { return true; }

private:
    using Events = std::span<const MemoryEvent>;

    /// `saves`: autograd keeps what forward events save. `on_gradient`: of backward events.
    void play(Events events, bool saves, const OnGradient& on_gradient = {});
    struct Stop {
        std::size_t before = 0;       ///< what is played, ends here …
        std::size_t saves_begin = 0;  ///< … but for these
        std::size_t saves_end = 0;
    };
    static Stop stop_of(Events events);
    void drop_oldest_output();
    void hold(std::int32_t storage);
    void allocate(std::int32_t storage);
    void let_go(std::int32_t storage);
    /// What autograd saved.
    void release(std::int32_t storage);
    void compute(std::int32_t row);

    const OperatorGraph& graph_;
    const ForwardProgram& program_;
    Emitter& emit_;
    std::vector<std::int32_t> buffer_;      // of each storage, as it is now
    std::vector<std::int32_t> holders_;     // of that
    std::vector<std::int32_t> replaced_;    // buffers of storages that were computed anew while they lived
    std::vector<std::int32_t> recomputed_;  // storages that the recomputation under way holds
    std::int32_t module_ = -1;              // row of the tree whose part is played; -1: the loss
    std::vector<std::int32_t> unpacked_;    // storages that went before their release
    std::vector<std::int32_t> left_;        // buffers that the graph of the backward before holds
    bool recomputing_ = false;
    bool unpacking_ = false;
    bool keeping_ = false;  // a forward under way, of a region whose results are partly kept
    KeptOperators kept_;
    std::vector<char> outlives_;  // storages that stay until the loss goes
    Workspaces workspaces_;
    std::int32_t output_storage_;       // what the model returns beside the loss
    std::vector<std::int32_t> output_;  // its buffers that the loop holds, the oldest first
};

}  // namespace fsdplan
