#pragma once

#include "operators/eager.hpp"

// PyTorch's operators on CUDA: what each allocates, keeps for backward and does then. An argument by value is
// a further name of the tensor until the expression ends; who moves a Value in gives up his own. Source:
// tools/autograd/derivatives.yaml of PyTorch 2.13 and what recordings show; the generated code works out the
// gradient of the last argument first.
namespace fsdplan::op {

/// x [..., in], weight [out, in], bias [out] or empty.
Value linear(Eager& f, Value x, const Value& weight, const Value& bias = {});
/// The same with a weight [in, out] (transformers' Conv1D).
Value linear_transposed(Eager& f, Value x, const Value& weight, const Value& bias);
Value embedding(Eager& f, const Value& ids, const Value& weight);

Value to(Eager& f, Value x, DType dtype);
/// A copy with contiguous memory.
Value contiguous(Eager& f, Value x);

Value add(Eager& f, Value a, Value b);
Value mul(Eager& f, Value a, Value b);
/// A number is one of the operands.
Value mul_scalar(Eager& f, Value x);
Value add_scalar(Eager& f, Value x);
Value neg(Eager& f, Value x);
/// A constant exponent.
Value power(Eager& f, Value x);
Value mean_last(Eager& f, Value x);
Value rsqrt(Eager& f, Value x);
Value tanh(Eager& f, Value x);
/// Bounded by tanh: x / c, tanh, times c.
Value soft_cap(Eager& f, Value x);
/// One kernel that keeps its input: silu, gelu.
Value activation(Eager& f, Value x, std::string_view name);
/// One kernel that keeps its result: relu, sigmoid.
Value activation_by_result(Eager& f, Value x, std::string_view name);

/// A slice of `size` of the last dimension; a view.
Value narrow_last(Eager& f, const Value& x, std::int64_t size);
/// `parts` equal views along the last dimension, whose gradients are joined again.
std::vector<Value> split_last(Eager& f, const Value& x, std::size_t parts);
/// torch.chunk along the tokens of [batch, sequence, width]: at most `parts` views, whose gradients are
/// joined again.
std::vector<Value> chunk_sequence(Eager& f, const Value& x, std::int64_t parts);
Value cat_last(Eager& f, Value a, Value b);
/// A view whose gradient is a view too.
Value reshape(Eager& f, const Value& x, Shape shape);
/// x[:, 0] of [batch, sequence, width]; a view.
Value first_of_sequence(Eager& f, const Value& x);

Value layer_norm(Eager& f, Value x, const Value& weight, const Value& bias);
/// Masked for backward; hands x through when p is 0.
Value dropout(Eager& f, Value x, double p);
Value softmax(Eager& f, Value x, DType dtype);
/// Rows that see nothing become zero.
Value safe_softmax(Eager& f, Value x);
/// a [..., m, k] times b, which is or becomes [..., k, n]; `shape` is [..., m, n].
Value matmul(Eager& f, Value a, Value b, Shape shape);

/// F.cross_entropy of logits [n, classes] in their dtype.
Value cross_entropy(Eager& f, Value logits, const Value& target);

}  // namespace fsdplan::op
