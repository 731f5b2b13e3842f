#pragma once

#include <memory>

#include "fsdplan/operators.hpp"
#include "model/onnx/tree.hpp"

namespace fsdplan::onnx {

/// What a file describes.
struct ImportedGraph {
    Graph graph;
    std::vector<Slot> slots;
    std::vector<std::vector<std::int32_t>> slot_of_input;
};

/// Sizes of a batch that the file fixes, of its first input; absent: any will do.
struct FixedSizes {
    std::optional<std::int64_t> batch;
    std::optional<std::int64_t> sequence;
};
/// Throws Error(input) for a dimension that neither has a size nor a name that says what it counts.
FixedSizes fixed_sizes(const Graph& graph);

/// One forward and backward of the graph in training, with the workload's batch and sequence in place of the
/// dimensions that are named so. Without calls when the tree is not the file's, or the graph's sizes are
/// others or do not follow: its notes say which.
OperatorGraph operators_of(const ImportedGraph& imported, const ModuleTree& tree, const Workload& workload);

}  // namespace fsdplan::onnx
