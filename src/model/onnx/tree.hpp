#pragma once

#include <string>
#include <vector>

#include "model/onnx/graph.hpp"

namespace fsdplan::onnx {

/// A tensor that a module holds.
struct Slot {
    std::string module;  ///< path
    std::string name;    ///< "weight"
};

/// The modules of a graph, and which of their tensors its nodes read.
struct Modules {
    ModelGraph model;
    std::vector<Slot> slots;
    std::vector<std::vector<std::int32_t>> slot_of_input;  ///< by node and input: row of `slots`, or -1
};

/// Rebuilds the modules of a graph that was fused, from the names of initializers and the scopes of nodes.
Modules modules_of(const Graph& graph, const ImportOptions& options);

}  // namespace fsdplan::onnx
