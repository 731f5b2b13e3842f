#include "schedule/low_bit_adam.hpp"

namespace fsdplan::builtin::optimizer {

extern const OptimizerInfo adam8bit;
constinit const OptimizerInfo adam8bit{
    .name = "adam8bit",
    .help = "torchao.optim.Adam8bit and AdamW8bit",
    .states = "two moments of 8 bits with a scale for 256 elements",
    .temporaries = low_bit_adam::temporaries,
    .keep = [](const LocalParameter& parameter,
               Optimizer::Implementation) { return low_bit_adam::keep(parameter, 8, 256); },
    .step = low_bit_adam::step,
};

}  // namespace fsdplan::builtin::optimizer
