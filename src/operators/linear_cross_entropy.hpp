#pragma once

#include "operators/functional.hpp"

// Cross entropy of x @ weight.T that never has these logits as a whole. rows [n, width], weight [classes,
// width], bias [classes] or empty, target [n]; the loss is one number.
namespace fsdplan::op {

/// LigerFusedLinearCrossEntropyFunction of liger_kernel 0.8: gradients are worked out in forward, `chunk`
/// rows at a time, and wait for backward.
Value liger_cross_entropy(Eager& f, const Value& rows, const Value& weight, const Value& bias,
                          const Value& target, std::int64_t chunk);

/// LinearCrossEntropyFunction of Apple's cut_cross_entropy 25.1: one kernel forward, and one backward that
/// multiplies again.
Value cut_cross_entropy(Eager& f, const Value& rows, const Value& weight, const Value& target);

}  // namespace fsdplan::op
