#pragma once

#include "base/json.hpp"
#include "fsdplan/model.hpp"

namespace fsdplan {

/// Fills shape and numel of a new tensor from an array of sizes.
/// Throws Error(input) for a negative size and for more than 2^53 elements.
void read_shape(json::Value shape, Tensor& tensor);

}  // namespace fsdplan
