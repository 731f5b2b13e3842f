#pragma once

#include "fsdplan/schedule.hpp"

namespace fsdplan {

/// A training step under DeepSpeed's default settings, stage 1 to 3 by the job's runtime.
StepLayout lay_out_zero(const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job);

}  // namespace fsdplan
