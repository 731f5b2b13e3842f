#pragma once

#include <span>

#include "schedule/emitter.hpp"

// What clip_grad_norm_ holds while it computes the norm of all gradients together.
namespace fsdplan {

/// A gradient on this rank.
struct LocalGradient {
    std::int64_t numel = 0;
    DType dtype = DType::float32;
};

/// torch.nn.utils.clip_grad_norm_ by foreach: a norm for each gradient, and partial norms of their chunks.
/// `sharded`: then the norms are stacked and their powers summed over the ranks (DTensor).
/// Source: foreach_tensor_norm_cuda, ATen/native/cuda/ForeachReduceOp.cu.
void norms_by_foreach(Emitter& emit, std::span<const LocalGradient> gradients, bool sharded);

/// FullyShardedDataParallel.clip_grad_norm_: a float32 norm for each gradient, then all of them in one
/// tensor. Source: _get_grad_norm, torch/distributed/fsdp/fully_sharded_data_parallel.py.
void norms_one_by_one(Emitter& emit, std::span<const LocalGradient> gradients);

}  // namespace fsdplan
