#include "schedule/adam.hpp"

namespace fsdplan::builtin::optimizer {

extern const OptimizerInfo adamw;
constinit const OptimizerInfo adamw = fsdplan::adam::entry("adamw", "torch.optim.AdamW");

}  // namespace fsdplan::builtin::optimizer
