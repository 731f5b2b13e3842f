#pragma once

#include <utility>

#include "operators/functional.hpp"

// Attention as transformers' models compute it.
namespace fsdplan::attention {

/// Cosine and sine of the positions, [1, sequence, width].
struct Rotation {
    Value cos;
    Value sin;
};
/// A rotary embedding's forward: float32, then in `dtype`.
Rotation rotation(Eager& f, ModuleIndex m, const Value& hidden, std::int64_t width);
/// q and k turned, both [batch, heads, sequence, dim].
std::pair<Value, Value> rotate(Eager& f, const Value& q, const Value& k, const Rotation& rotation);

/// [batch, sequence, heads * dim] as [batch, heads, sequence, dim], a view. `laid_out`: whether the gradient
/// comes in the view's own layout; else it is copied.
Value heads(Eager& f, const Value& x, std::int64_t count, bool laid_out);

/// scaled_dot_product_attention without a mask tensor: flash in half precision, memory-efficient or plain in
/// float32. q [b, h, s, d], k and v [b, kv heads, t, d]; gives [b, s, h * d].
Value sdpa(Eager& f, Value q, Value k, Value v);

/// The causal mask that eager attention adds, [batch, 1, s, s].
Value eager_mask(Eager& f, std::int64_t batch, std::int64_t sequence, DType dtype);
/// transformers' eager_attention_forward: scores in full, softmax in float32. `capped`: tanh bounds the
/// scores.
Value eager(Eager& f, Value q, Value k, Value v, const Value& mask, bool capped);

}  // namespace fsdplan::attention
