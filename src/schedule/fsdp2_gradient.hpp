#pragma once

#include "schedule/fsdp2_group.hpp"

// Gradients of unsharded parameters, from autograd's hands to a reduction.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param.py and _fsdp_param_group.py of PyTorch 2.13.
namespace fsdplan::fsdp2 {

/// Autograd computes (a part of) the member's gradient.
inline void compute_gradient(const Member& m, Emitter& emit) {
    const std::int32_t into = m.has_gradient ? m.incoming : m.gradient;
    if (!emit.is_live(into)) {
        emit.allocate(into);
    }
}

/// The member's .grad is complete. `reduces`: the coming post-backward reduces it.
void accumulate(Member& m, const Group& g, bool reduces, const TorchBehaviour& torch, Emitter& emit);

/// Gradients that a group has, accumulated ones apart.
std::int64_t count_gradients(const Group& g);

/// Takes new gradients into what earlier micro-batches have accumulated.
void add_to_accumulated(Group& g, Emitter& emit);

/// no_sync: gradients stay whole, in the dtype of the reduction.
void keep_unreduced(Group& g, Emitter& emit);

}  // namespace fsdplan::fsdp2
