#pragma once

#include <functional>

#include "base/json.hpp"
#include "fsdplan/operators.hpp"

namespace fsdplan {

/// Tensor ids of the file to positions; throws Error(input) at an id that there is not.
using TensorOfId = std::function<TensorIndex(const json::Value& id)>;

/// Reads "operators" of a module tree of version 2 (docs/formats.md) into ModelGraph::operators. The graph
/// that it hands out is the recorded one: empty for another workload, another dtype or a changed model (the
/// recorded loss and attention count as the usual ones). Throws Error(input) where the rows break a rule of
/// the format.
void read_operators(const json::Value& operators, const TensorOfId& tensor_of, ModelGraph& graph);

}  // namespace fsdplan
