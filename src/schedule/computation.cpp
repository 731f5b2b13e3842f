#include "schedule/computation.hpp"

#include "schedule/layer_computation.hpp"
#include "schedule/operator_computation.hpp"

namespace fsdplan {
namespace {

/// Nobody says what computations cost: an operation without work stands for the user's code.
class Unpriced final : public Computation {
public:
    explicit Unpriced(const ForwardProgram& program, Emitter& emit) : program_(program), emit_(emit) {}

    void forward(std::int32_t /*call*/, Forward /*how*/) override { user_code(); }
    void backward(std::int32_t call, const Unpacking& /*unpacking*/, const OnGradient& on_gradient) override {
        user_code();
        for (const TensorIndex t : program_.parameters(call)) {
            on_gradient(t);
        }
    }
    void loss() override { user_code(); }
    void loss_backward(const OnGradient& /*on_gradient*/) override {}
    void drop_output() override {}
    void keep_inputs(std::int32_t /*call*/) override {}
    void release_inputs(std::int32_t /*call*/) override {}
    void drop_recomputed() override {}
    std::optional<Saving> saving(std::int32_t /*call*/) const override { return std::nullopt; }
    void leave_graph() override {}
    void drop_graph() override {}
    void user_code() override { emit_.add({.kind = OpKind::compute, .pass = emit_.pass}); }
    bool is_priced() const override { return false; }

private:
    const ForwardProgram& program_;
    Emitter& emit_;
};

}  // namespace

std::unique_ptr<Computation> computation_of(const LoweringInput& input, const ForwardProgram& program,
                                            Emitter& emit) {
    if (input.operators != nullptr) {
        return std::make_unique<OperatorComputation>(input, program, emit);
    }
    if (!input.work.empty()) {
        return std::make_unique<LayerComputation>(input, program, emit);
    }
    return std::make_unique<Unpriced>(program, emit);
}

}  // namespace fsdplan
