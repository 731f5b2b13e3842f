#pragma once

#include "fsdplan/schedule.hpp"

namespace fsdplan {

/// DeepSpeed ZeRO, stage 1 to 3.
Schedule lower_zero(const LoweringInput& input, int stage);

}  // namespace fsdplan
