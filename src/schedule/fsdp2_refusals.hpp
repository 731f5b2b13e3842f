#pragma once

#include <vector>

#include "fsdplan/schedule.hpp"

namespace fsdplan::fsdp2 {

/// What fully_shard and its first forward refuse: RuntimeInfo::refusals.
std::vector<Diagnostic> refusals(const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job);

}  // namespace fsdplan::fsdp2
