#pragma once

#include <string>
#include <vector>

#include "model/onnx/tree.hpp"

namespace fsdplan::onnx {

/// What a slot of a module holds.
struct HeldTensor {
    Slot slot;
    std::vector<std::int64_t> shape;
    DType dtype = DType::float32;
    bool is_buffer = false;
    std::int32_t tied_to = -1;  ///< an earlier row that is the same tensor
};

struct HeldTensors {
    std::vector<HeldTensor> rows;
    std::vector<std::vector<std::int32_t>> of_input;  ///< by node and input: a row, or -1
    std::int64_t named_by_place = 0;                  ///< rows whose names the exporter has replaced
    std::int64_t taken_apart = 0;  ///< rows that the exporter has merged for their equal values
};

/// Which initializers are tensors of which module.
///
/// Exporters fold and merge: a weight comes back under a made-up name and transposed, and tensors of equal
/// values are stored once. The module whose operator reads an initializer, and as what, says what it was.
HeldTensors held_tensors(const Graph& graph);

}  // namespace fsdplan::onnx
