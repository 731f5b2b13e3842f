#pragma once

#include <vector>

#include "fsdplan/schedule.hpp"

namespace fsdplan::fsdp1 {

/// What FullyShardedDataParallel refuses: RuntimeInfo::refusals.
std::vector<Diagnostic> refusals(const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job);

}  // namespace fsdplan::fsdp1
