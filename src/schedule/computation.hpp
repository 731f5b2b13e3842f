#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "fsdplan/schedule.hpp"
#include "schedule/emitter.hpp"
#include "schedule/forward_program.hpp"

namespace fsdplan {

/// What the model's own code computes, and what memory that takes: the part of a training step that is no
/// runtime's. Calls are those of the forward program, leaves where nothing else is said.
class Computation {
public:
    using OnGradient = std::function<void(TensorIndex)>;

    Computation() = default;
    Computation(const Computation&) = delete;
    Computation& operator=(const Computation&) = delete;
    Computation(Computation&&) = delete;
    Computation& operator=(Computation&&) = delete;
    virtual ~Computation() = default;

    /// How much of a leaf's forward runs, and what for.
    enum class Forward : std::uint8_t {
        plain,        ///< nothing is kept for backward
        saving,       ///< autograd keeps what backward needs
        recomputing,  ///< the same inside backward
        stopping,     ///< recomputing, up to the last tensor that backward needs
    };
    virtual void forward(std::int32_t call, Forward how) = 0;
    /// What a checkpoint without a graph of its own has to do with a leaf's backward.
    struct Unpacking {
        bool active = false;        ///< what is read was computed again, and nobody else holds it
        std::int32_t last_of = -1;  ///< region of which it is the last: the inputs go as well; -1: none
    };
    /// `on_gradient` hears of each parameter whose gradient is computed.
    virtual void backward(std::int32_t call, const Unpacking& unpacking, const OnGradient& on_gradient) = 0;
    virtual void loss() = 0;
    /// A parameter's gradient can be memory that the loss's backward computed.
    virtual void loss_backward(const OnGradient& on_gradient) = 0;
    /// The loop forgets what the last forward returned beside the loss; what the one before returned goes as
    /// the next loss is computed.
    virtual void drop_output() = 0;
    /// A checkpoint around a call keeps its inputs from forward until it has been recomputed.
    virtual void keep_inputs(std::int32_t call) = 0;
    virtual void release_inputs(std::int32_t call) = 0;
    /// What a recomputation returned goes, autograd's part apart.
    virtual void drop_recomputed() = 0;
    /// The leaves at or below a call that save anything, the first and the last one.
    struct Saving {
        std::int32_t first;
        std::int32_t last;
    };
    /// Absent: the loop knows best.
    virtual std::optional<Saving> saving(std::int32_t call) const = 0;
    /// Backward is done: what the graph still holds stays until the loss goes.
    virtual void leave_graph() = 0;
    /// The loss of the backward before goes, and its graph.
    virtual void drop_graph() = 0;
    /// The runtime returns to the user's code or to autograd.
    virtual void user_code() = 0;
    /// False when computations cost nothing and save nothing.
    virtual bool is_priced() const = 0;
};

/// The best description that `input` has.
std::unique_ptr<Computation> computation_of(const LoweringInput& input, const ForwardProgram& program,
                                            Emitter& emit);

}  // namespace fsdplan
