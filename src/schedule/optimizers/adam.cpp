#include "schedule/adam.hpp"

namespace fsdplan::builtin::optimizer {

extern const OptimizerInfo adam;
constinit const OptimizerInfo adam{
    .name = "adam",
    .help = "torch.optim.Adam without weight decay",
    .implementations = adam::implementations,
    .states = adam::states,
    .temporaries = adam::temporaries,
    .keep = adam::keep,
    .step = adam::step,
    .smaller = "adam8bit",
};

}  // namespace fsdplan::builtin::optimizer
