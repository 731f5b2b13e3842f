#pragma once

#include <cstdint>
#include <string>

#include "base/json.hpp"
#include "fsdplan/job.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/wrap.hpp"

// A recorded run's configuration (`case` of `fsdplan.runtime-golden`, docs/formats.md) in our own terms.
namespace fsdplan {

/// What recordings keep in different places.
struct RecordedRun {
    std::string runtime;  ///< "fsdp1" or "fsdp2"
    std::string torch;
    std::int64_t world = 1;
};

struct RuntimeCase {
    TrainingJob job;
    WrapPlan plan;
};

/// Throws Error(input) for what a recording cannot say.
RuntimeCase runtime_case(const json::Value& recorded_case, const ModuleTree& tree, const RecordedRun& run);

}  // namespace fsdplan
