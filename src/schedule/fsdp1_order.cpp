#include "schedule/fsdp1_order.hpp"

#include <array>

namespace fsdplan::fsdp1 {

ExecutionOrder::ExecutionOrder(const TrainingJob& job, Emitter& emit) : job_(job), emit_(emit) {}

void ExecutionOrder::record_pre_forward(Handle& h) {
    if (!first_iteration_) {
        return;
    }
    if (job_.fsdp1.debug_detail) {
        check_with_ranks(h);
    }
    if (h.pre_forward_index < 0) {
        h.pre_forward_index = static_cast<std::int32_t>(pre_forward_order_.size());
        pre_forward_order_.push_back(h.unit);
    }
}

// TORCH_DISTRIBUTED_DEBUG=DETAIL: the ranks compare which unit they are about to run.
void ExecutionOrder::check_with_ranks(const Handle& h) {
    const std::int32_t check = emit_.collective({.kind = CollectiveKind::all_gather,
                                                 .dtype = DType::int32,
                                                 .ranks = h.settings.ranks,
                                                 .input_numel = 1,
                                                 .output_numel = h.settings.ranks});
    const std::int64_t numel = 1 + h.settings.ranks;
    const auto tensor = [&] {
        return add_buffer(emit_, -1, numel, DType::int32, Category::temporary, Stream::compute);
    };
    const std::array tensors{tensor(), tensor()};
    for (const std::int32_t b : tensors) {
        emit_.allocate(b);
        emit_.issue(check, -1, Stream::compute);
        emit_.copy(bytes_of(numel, DType::int32).count, -1, Stream::compute, OpKind::to_host);
        emit_.block(emit_.record(Stream::compute));
    }
    emit_.free(tensors[0]);
    emit_.free(tensors[1]);
}

// The index is only kept when it is not 0: a unit that ran first counts again when it runs a second time.
void ExecutionOrder::record_post_forward(Handle& h) {
    if (h.post_forward_index <= 0) {
        h.post_forward_index = static_cast<std::int32_t>(post_forward_order_.size());
    }
    post_forward_order_.push_back(h.unit);
}

void ExecutionOrder::end_of_backward() {
    first_iteration_ = false;
    post_forward_order_.clear();
}

std::int32_t ExecutionOrder::after_in_forward(const Handle& h) const {
    const auto next = static_cast<std::size_t>(h.pre_forward_index) + 1;
    return h.pre_forward_index < 0 || next >= pre_forward_order_.size() ? -1 : pre_forward_order_[next];
}

std::int32_t ExecutionOrder::after_in_backward(const Handle& h) const {
    return h.post_forward_index <= 0
               ? -1
               : post_forward_order_[static_cast<std::size_t>(h.post_forward_index) - 1];
}

}  // namespace fsdplan::fsdp1
