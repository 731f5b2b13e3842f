#pragma once

#include <vector>

#include "schedule/computation.hpp"
#include "schedule/workspaces.hpp"

namespace fsdplan {

/// One operation a leaf and direction, with what it saves as one buffer: from sums of layers' sizes, where no
/// operators are known.
class LayerComputation final : public Computation {
public:
    LayerComputation(const LoweringInput& input, const ForwardProgram& program, Emitter& emit);

    void forward(std::int32_t call, Forward how) override;
    void backward(std::int32_t call, const Unpacking& unpacking, const OnGradient& on_gradient) override;
    void loss() override;
    void loss_backward(const OnGradient& on_gradient) override;
    void drop_output() override;
    void keep_inputs(std::int32_t call) override;
    void release_inputs(std::int32_t call) override;
    void drop_recomputed() override {}  // each call frees its own
    std::optional<Saving> saving(std::int32_t /*call*/) const override { return std::nullopt; }
    void leave_graph() override;
    void drop_graph() override {}
    void user_code() override {}
    bool is_priced() const override { return true; }

private:
    static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
    void add_up(std::span<const CallWork> by_row);

    const ForwardProgram& program_;
    const CallWork loss_;
    Emitter& emit_;
    std::vector<CallWork> work_;             // by call
    std::vector<std::int32_t> saved_;        // buffer of what a call saves
    std::vector<std::int32_t> inputs_kept_;  // … of what a checkpoint around it keeps
    Workspaces workspaces_;
    std::vector<std::int32_t> logits_;  // of this forward and of the one before, in turn
    std::size_t output_now_ = 0;
    std::int32_t loss_temporary_ = -1;
};

}  // namespace fsdplan
