#pragma once

#include "fsdplan/schedule.hpp"

namespace fsdplan {

Schedule lower_fsdp1(const LoweringInput& input);
Schedule lower_fsdp2(const LoweringInput& input);
Schedule lower_ddp(const LoweringInput& input);
/// DeepSpeed, stages 1 to 3.
Schedule lower_zero(const LoweringInput& input);

}  // namespace fsdplan
