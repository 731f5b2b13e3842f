#pragma once

#include <optional>
#include <string>

#include "base/json.hpp"
#include "fsdplan/model.hpp"

namespace fsdplan {

/// The model of a recording of CUDA memory, or why it cannot be had.
struct RecordedModel {
    std::optional<ModelGraph> graph;
    std::string reason;  ///< set without a graph
};

/// Looks in models/ beside the recording, then in the library.
RecordedModel recorded_model(const std::string& path, const json::Value& recorded_case);

/// As FSDP1 leaves a model that it fills unit by unit from the meta device: tied weights have come apart.
void untie(ModelGraph& graph);

}  // namespace fsdplan
