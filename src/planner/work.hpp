#pragma once

#include <vector>

#include "planner/estimates.hpp"

namespace fsdplan {

/// What the user's own computation costs, for lowerings, and how far off the estimates of it may be.
struct ModelWork {
    std::vector<CallWork> rows;  ///< by row of the tree
    CallWork loss;
    /// What is saved for backward, over all rows: the ends of its interval as shares of its value.
    double saved_low = 1.0;
    double saved_high = 1.0;
};
ModelWork work_of(const ModuleTree& tree, const ModelFacts& facts, const Activations& activations,
                  const LossBytes& loss, const TrainingJob& job, const Gpu& gpu);

}  // namespace fsdplan
