#pragma once

#include <string_view>

#include "fsdplan/model.hpp"

namespace fsdplan {

/// The model with its frozen linear layers as bitsandbytes' Linear4bit keeps them in QLoRA: two weights a
/// byte, packed into elements of `storage`, with a scale of one byte for 64 weights and one of four for 256
/// such scales, which stay whole on every rank. Layers in a slot named `kept` stay as they are. Source:
/// bitsandbytes/functional.py (quantize_4bit with compress_statistics).
ModelGraph with_four_bit_weights(ModelGraph graph, std::string_view kept, DType storage);

/// The class that such a layer then has, without its module.
constexpr std::string_view four_bit_class = "Linear4bit";

}  // namespace fsdplan
