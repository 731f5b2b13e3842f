#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "fsdplan/planner.hpp"

namespace fsdplan {

/// What a recording of CUDA memory ran, in our words.
struct CudaMemoryCase {
    TrainingJob job;
    WrapPlan plan;
    Cluster cluster;
    AllocatorOptions allocator;
    FreeTiming timing = FreeTiming::by_clock;
    std::vector<std::int64_t> input_bytes;
    int steps = 3;
};

/// Why a case cannot be replayed, although its file is in order.
struct Unsupported {
    std::string reason;
};

/// Reads `case` of a recording; throws Error(input) for what such a file cannot say and Unsupported for what
/// is not known here. `tree` is the model as it is trained.
CudaMemoryCase cuda_memory_case(const json::Value& recorded_case, const ModuleTree& tree);

/// Whether the wrapper was given a model on the meta device and filled it unit by unit, so that ties broke.
bool breaks_ties(const json::Value& recorded_case);

}  // namespace fsdplan
