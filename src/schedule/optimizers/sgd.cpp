#include "schedule/sgd.hpp"

namespace fsdplan::builtin::optimizer {

extern const OptimizerInfo sgd;
constinit const OptimizerInfo sgd{
    .name = "sgd",
    .help = "torch.optim.SGD without momentum",
    .implementations = fsdplan::sgd::implementations,
    .states = "SGD without momentum keeps nothing",
    .temporaries = fsdplan::sgd::temporaries,
    .keep = [](const LocalParameter&, Optimizer::Implementation) { return std::vector<StateBuffer>{}; },
    .step = [](OptimizerStep& step) { fsdplan::sgd::step(step, 3, 1); },
    .refused = fsdplan::sgd::refused,
};

}  // namespace fsdplan::builtin::optimizer
