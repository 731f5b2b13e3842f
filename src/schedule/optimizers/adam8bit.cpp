#include "schedule/low_bit_adam.hpp"

namespace fsdplan::builtin::optimizer {

extern const OptimizerInfo adam8bit;
constinit const OptimizerInfo adam8bit =
    low_bit_adam::entry<8, 256>("adam8bit", "torchao.optim.Adam8bit and AdamW8bit",
                                "two moments of 8 bits with a scale for 256 elements");

}  // namespace fsdplan::builtin::optimizer
