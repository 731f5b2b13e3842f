#pragma once

#include <string_view>

#include "fsdplan/model.hpp"

namespace fsdplan {

/// The small model that a row of accelerate's recordings is about. The recording says in words which: a llama
/// of two layers unless the row's name begins with another model's.
ModelGraph small_recorded_model(std::string_view row_name);

/// The llama of two layers, its first one frozen or not.
ModelGraph small_llama(DType dtype, bool first_layer_frozen);

}  // namespace fsdplan
