#pragma once

#include "fsdplan/schedule.hpp"

namespace fsdplan {

Schedule lower_fsdp1(const LoweringInput& input);
Schedule lower_fsdp2(const LoweringInput& input);

}  // namespace fsdplan
