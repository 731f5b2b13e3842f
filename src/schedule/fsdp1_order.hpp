#pragma once

#include <cstdint>
#include <vector>

#include "schedule/fsdp1_handle.hpp"

// The order in which units run, by which they are prefetched.
// Source: torch/distributed/fsdp/_exec_order_utils.py of PyTorch 2.13.
namespace fsdplan::fsdp1 {

class ExecutionOrder {
public:
    ExecutionOrder(const TrainingJob& job, Emitter& emit);

    void record_pre_forward(Handle& h);
    void record_post_forward(Handle& h);
    void end_of_backward();

    /// The unit that follows `h` in forward, or in backward; -1: none that is known.
    std::int32_t after_in_forward(const Handle& h) const;
    std::int32_t after_in_backward(const Handle& h) const;

private:
    void check_with_ranks(const Handle& h);

    const TrainingJob& job_;
    Emitter& emit_;
    std::vector<std::int32_t> pre_forward_order_;
    std::vector<std::int32_t> post_forward_order_;
    bool first_iteration_ = true;
};

}  // namespace fsdplan::fsdp1
