#pragma once

#include "operators/layers.hpp"

// Losses of models with a head over a vocabulary, as the workload asks for them.
namespace fsdplan {

/// The language head of a causal model and its loss. `capped`: tanh bounds the logits.
Value head_and_loss(Eager& f, ModuleIndex head, const Value& hidden, bool capped = false);

/// Cross entropy of [batch, sequence, classes] in the logits' dtype, as masked models and T5 use it.
Value token_loss(Eager& f, const Value& logits);

/// Cross entropy of [batch, classes] in the logits' dtype.
Value class_loss(Eager& f, const Value& logits);

/// Rows of the logits that liger_kernel's fused linear cross entropy has at a time: as many as take no more
/// memory than the head's input, rounded up to a power of two, where the loss names no number of pieces.
std::int64_t fused_chunk_rows(const Loss& loss, std::int64_t rows, std::int64_t width, std::int64_t classes);

}  // namespace fsdplan
