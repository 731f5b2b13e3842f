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
/// The same for models that turn only the first features of a head, as many as `rotation` is wide.
std::pair<Value, Value> rotate_part(Eager& f, const Value& q, const Value& k, const Rotation& rotation);

/// [batch, sequence, heads * dim] as [batch, heads, sequence, dim], a view. `laid_out`: whether the gradient
/// comes in the view's own layout; else it is copied.
Value heads(Eager& f, const Value& x, std::int64_t count, bool laid_out);

/// True where attention looks, [1, 1, sequence, sequence].
Value window_mask(Eager& f, std::int64_t sequence);
/// The attention that the workload asks for, other than eager: the package flash-attn, or
/// scaled_dot_product_attention: flash in half precision without a mask; memory-efficient with one or in
/// float32; written out in float32 where heads share k and v. q [b, h, s, d], k and v [b, kv heads, t, d];
/// gives [b, s, h * d].
Value sdpa(Eager& f, Value q, Value k, Value v, const Value& mask, bool causal);
/// The same with causal attention over q that lies in memory in this order, not as a view of [b, s, h * d];
/// what flash gives then has to be copied.
Value sdpa_by_head(Eager& f, const Value& q, const Value& k, const Value& v);
/// With a bias [1, h, s, t] for the scores, contiguous: memory-efficient attention.
Value sdpa_biased(Eager& f, const Value& q, const Value& k, const Value& v, const Value& bias);

/// The causal mask that eager attention adds, [batch, 1, s, s].
Value eager_mask(Eager& f, std::int64_t batch, std::int64_t sequence, DType dtype);
/// transformers' eager_attention_forward: scores in full, softmax in float32. `capped`: tanh bounds the
/// scores.
Value eager(Eager& f, Value q, Value k, Value v, const Value& mask, bool capped);

}  // namespace fsdplan::attention
