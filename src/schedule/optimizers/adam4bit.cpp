#include "schedule/low_bit_adam.hpp"

namespace fsdplan::builtin::optimizer {

extern const OptimizerInfo adam4bit;
constinit const OptimizerInfo adam4bit{
    .name = "adam4bit",
    .help = "torchao.optim.Adam4bit and AdamW4bit",
    .states = "two moments of 4 bits with a scale for 128 elements",
    .temporaries = low_bit_adam::temporaries,
    .keep = [](const LocalParameter& parameter,
               Optimizer::Implementation) { return low_bit_adam::keep(parameter, 4, 128); },
    .step = low_bit_adam::step,
};

}  // namespace fsdplan::builtin::optimizer
