#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/fsdp1_handle.hpp"

// What flat parameters take before the first forward computes.
// Source: torch/distributed/fsdp/_flat_param.py and _runtime_utils.py of PyTorch 2.13.
namespace fsdplan::fsdp1 {

/// Rows of `units` in the order in which the plan constructs them.
std::vector<std::int32_t> construction_order(const WrapPlan& plan, std::span<const LoopUnit> units);

/// Makes the shard, out of parameters that lie on the device if the job says so.
void construct(const Handle& h, const TrainingJob& job, Emitter& emit);

/// Lazy initialisation, when the first forward starts: allocates what stays.
void initialize(const Handle& h, Emitter& emit);

}  // namespace fsdplan::fsdp1
