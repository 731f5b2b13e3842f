#pragma once

#include "schedule/fsdp1_handle.hpp"

// How the gradients of a unit's parameters become the gradient of its shard.
// Source: _post_backward_hook and what it calls, torch/distributed/fsdp/_runtime_utils.py of PyTorch 2.13.
namespace fsdplan::fsdp1 {

/// The gradients of the members are concatenated into that of the flat parameter.
void assemble(Handle& h, Emitter& emit);

/// What autograd has computed beside an unsharded gradient that is kept has been added to that, in its dtype.
void accumulate(Handle& h, Emitter& emit);

/// Reduces the gradient of the flat parameter.
void reduce(Handle& h, const TrainingJob& job, Emitter& emit);

/// keep_low_precision_grads: after the last backward what was raised for accumulation goes back to the
/// compute dtype.
void keep_low_precision(Handle& h, const TrainingJob& job, Emitter& emit);

/// Neither the flat parameter nor its shard has a gradient any more.
void drop_gradients(Handle& h, Emitter& emit);

}  // namespace fsdplan::fsdp1
