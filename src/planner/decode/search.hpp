#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/decode/decode.hpp"

namespace fsdplan {

/// A plan and its collectives.
struct DecodedPlan {
    TrainingJob job;
    WrapPlan wrap;
    std::vector<PredictedCall> calls;
};

struct DecodeSearch {
    std::optional<DecodedPlan> best;  ///< explains the most sightings; absent: PyTorch refuses all plans
    std::int64_t tried = 0;
    std::string refusal;  ///< what PyTorch says about the asked units, if it refuses them
    /// By sighting: predicted sizes next to it in the plans that do not explain it.
    std::vector<std::vector<NearSize>> near;
};

/// Tries plans until one explains every sighting that has sizes. The asked units come first, then common
/// ones, then runtimes that have none: many of their sizes are like something.
DecodeSearch search_plans(const DecodeQuestion& question, const std::vector<Sighting>& sightings);

}  // namespace fsdplan
