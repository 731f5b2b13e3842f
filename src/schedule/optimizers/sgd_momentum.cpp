#include "schedule/sgd.hpp"

namespace fsdplan {
namespace {

// The momentum is read and written, once in a fused kernel and twice otherwise, and read for the parameter.
void step_with_momentum(OptimizerStep& step) {
    const bool fused = step.is(Optimizer::Implementation::fused);
    sgd::step(step, fused ? 5 : 8, fused ? 1 : 3);
}

}  // namespace

namespace builtin::optimizer {

extern const OptimizerInfo sgd_momentum;
constinit const OptimizerInfo sgd_momentum{
    .name = "sgd-momentum",
    .help = "torch.optim.SGD with momentum",
    .implementations = fsdplan::sgd::implementations,
    .states = "one momentum in the stored dtype",
    .temporaries = fsdplan::sgd::temporaries,
    .keep = [](const LocalParameter& parameter,
               Optimizer::Implementation) { return std::vector<StateBuffer>{{parameter.bytes()}}; },
    .step = step_with_momentum,
    .refused = fsdplan::sgd::refused,
};

}  // namespace builtin::optimizer
}  // namespace fsdplan
