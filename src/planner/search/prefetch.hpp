#pragma once

#include <vector>

#include "planner/search/score.hpp"

namespace fsdplan {

/// The job with other ways to prefetch the units of a plan: with lists for fully_shard, one or two units
/// ahead in the order in which the units gather; in FSDP1 with forward_prefetch and backward prefetching
/// after the computation.
std::vector<TrainingJob> with_other_prefetching(const Evaluation& about, const WrapPlan& plan,
                                                const TrainingJob& job);

}  // namespace fsdplan
