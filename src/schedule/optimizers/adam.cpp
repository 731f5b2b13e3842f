#include "schedule/adam.hpp"

namespace fsdplan::builtin::optimizer {

extern const OptimizerInfo adam;
constinit const OptimizerInfo adam = fsdplan::adam::entry("adam", "torch.optim.Adam without weight decay");

}  // namespace fsdplan::builtin::optimizer
