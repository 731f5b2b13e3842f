#pragma once

#include "base/json.hpp"
#include "fsdplan/job.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/schedule.hpp"
#include "fsdplan/wrap.hpp"

// A recorded run's configuration (`fsdplan.runtime-golden`, docs/formats.md) in our own terms.
namespace fsdplan {

struct RuntimeCase {
    TrainingJob job;
    WrapPlan plan;
    /// Parameters that no computation reads: the model's file cannot tell, the counts of gradients do.
    std::vector<TensorIndex> unread;
};

/// `recording` is the file's root. Throws Error(input) for what a recording cannot say.
RuntimeCase runtime_case(const json::Value& recording, const ModuleTree& tree);

}  // namespace fsdplan
