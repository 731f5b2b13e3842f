#pragma once

#include "operators/eager.hpp"

namespace fsdplan::op {

/// A convolution whose kernel is as large as its stride: x [batch, channels, height, width], weight [out,
/// channels, kernel height, kernel width]; gives [batch, patches, out] as a view of [batch, out, patches].
/// Scratch memory of cuDNN is not described.
Value patch_convolution(Eager& f, const Value& x, const Value& weight, const Value& bias);

/// a and b [batch, rows, width], one below the other.
Value cat_rows(Eager& f, const Value& a, const Value& b);

/// x [1, rows, width] for each of a batch, a view.
Value expand_batch(Eager& f, const Value& x, std::int64_t batch);

/// Any convolution, with or without a bias; `shape` is that of the result. cuDNN's scratch memory is not
/// described.
Value convolution(Eager& f, const Value& x, const Value& weight, const Value& bias, Shape shape);
/// In training mode: the statistics of the batch are kept, in float32.
Value batch_norm(Eager& f, Value x, const Value& weight, const Value& bias);
/// Keeps where each maximum was.
Value max_pool(Eager& f, Value x, Shape shape);
Value average_pool(Eager& f, Value x, Shape shape);

}  // namespace fsdplan::op
