#pragma once

#include "fsdplan/operators.hpp"
#include "model/onnx/graph.hpp"
#include "operators/eager.hpp"

namespace fsdplan::onnx {

/// The shape of an input under a workload; throws Error(input) at a dimension of which nobody knows what it
/// counts.
Shape input_shape(const Graph& graph, ValueId input, const Workload& workload);

/// The shape that the file gives a value, under a workload; none when it leaves a size open.
std::optional<Shape> said_shape(const TensorType& type, const Workload& workload);

}  // namespace fsdplan::onnx
