#include "schedule/low_bit_adam.hpp"

namespace fsdplan::builtin::optimizer {

extern const OptimizerInfo adam4bit;
constinit const OptimizerInfo adam4bit =
    low_bit_adam::entry<4, 128>("adam4bit", "torchao.optim.Adam4bit and AdamW4bit",
                                "two moments of 4 bits with a scale for 128 elements");

}  // namespace fsdplan::builtin::optimizer
