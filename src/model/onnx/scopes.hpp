#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/onnx/graph.hpp"

namespace fsdplan::onnx {

/// The strings of a list as Python prints it, "['', 'layers.0']"; empty when it is none.
std::vector<std::string> python_list(std::string_view text);

/// Scopes from what torch.export writes down of a node: paths and classes from the root to the operator
/// itself.
std::vector<Scope> scopes_of_metadata(std::string_view name_scopes, std::string_view class_hierarchy);

/// Scopes from a node's name as TorchScript's exporter makes it, "/layers.0/norm/Add".
std::vector<Scope> scopes_of_name(std::string_view name);

/// Finds the modules of further calls, which TorchScript's exporter numbers: "drop_1" is "drop" called again,
/// unless it holds tensors of its own.
void find_repeated_calls(Graph& graph);

}  // namespace fsdplan::onnx
