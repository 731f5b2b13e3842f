#include "schedule/adam.hpp"

namespace fsdplan::builtin::optimizer {

extern const OptimizerInfo adamw;
constinit const OptimizerInfo adamw{
    .name = "adamw",
    .help = "torch.optim.AdamW",
    .implementations = adam::implementations,
    .states = adam::states,
    .temporaries = adam::temporaries,
    .keep = adam::keep,
    .step = adam::step,
    .smaller = "adam8bit",
};

}  // namespace fsdplan::builtin::optimizer
