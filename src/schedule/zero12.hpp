#pragma once

#include <span>
#include <vector>

#include "schedule/zero_partitions.hpp"

// DeepSpeed with whole parameters on every rank: stages 0 (no ZeRO), 1 (optimizer states are partitioned) and
// 2 (gradients too).
namespace fsdplan::zero {

/// Whether stage 1 hands over to the optimizer for bf16 parameters with float32 gradients, which reduces all
/// gradients in the padded buffers and neither checks for overflow nor, apart, for the norm.
bool uses_float32_gradients(const Options& options);

/// Layout of the groups under this optimizer.
std::vector<FlatGroup> stored_groups(std::span<const Parameter> parameters, const Options& options);

/// One iteration; all are alike. `ready`: rows of the trainable parameters in the order in which their
/// gradients become ready, without those that get none.
std::vector<Event> zero12_iteration(std::span<const Parameter> parameters, const Options& options,
                                    std::span<const std::int32_t> ready);

}  // namespace fsdplan::zero
