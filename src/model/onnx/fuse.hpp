#pragma once

#include <vector>

#include "model/onnx/graph.hpp"

namespace fsdplan::onnx {

/// Puts torch's operators back where exporters wrote several of ONNX's for one, and drops nodes that nothing
/// uses:
///
/// `linear` {x, weight, bias}: MatMul with a parameter, or Gemm. `transposed` = 1: the weight is [in, out];
///     `folded` = 1: the exporter has transposed it.
/// `attention` {q, k, v, mask}: scaled_dot_product_attention, known by the root of its scale on both
/// operands.
///     `k_order`: the transposition that k went through, which may hold the one into heads.
/// `gelu` {x}, `silu` {x}, `rsqrt` {x}: written out with Erf, Sigmoid, Sqrt.
void fuse(Graph& graph);

/// Per node: whether all that it computes are numbers that the host knows, such as shapes and scalars.
std::vector<char> host_nodes(const Graph& graph);

/// A name that the exporter made up, such as "onnx::MatMul_12" or "val_3".
bool is_generated(std::string_view name);

}  // namespace fsdplan::onnx
