#include <algorithm>

#include "checkpoint/call_player.hpp"

namespace fsdplan {

std::string_view name(StateOperation operation) {
    switch (operation) {
        case StateOperation::all_gather:
            return "all_gather";
        case StateOperation::broadcast:
            return "broadcast";
        case StateOperation::scatter:
            return "scatter";
        case StateOperation::all_reduce:
            return "all_reduce";
        case StateOperation::object_all_gather:
            return "object:all_gather_object";
        case StateOperation::object_broadcast:
            return "object:broadcast_object_list";
        case StateOperation::object_gather:
            return "object:gather_object";
        case StateOperation::object_scatter:
            return "object:scatter_object_list";
    }
    return "";
}

bool StateCall::sends_objects() const {
    return std::ranges::any_of(
        events, [](const StateEvent& event) { return event.operation >= StateOperation::object_all_gather; });
}

std::int64_t state_bytes(const StateLayout& layout, const StateTensor& tensor, std::int64_t bytes) {
    return layout.optimizer.dtype ? bytes * bits(*layout.optimizer.dtype) / bits(tensor.dtype) : bytes;
}

StateCall state_call(const StateLayout& layout, const StateRequest& request, std::int64_t rank,
                     StateDevice device) {
    using Subject = StateRequest::Subject;
    using Direction = StateRequest::Direction;
    CallPlayer player(layout, request, rank, device);
    const bool saves = request.direction == Direction::save;
    if (layout.runtime != StateRuntime::fsdp1) {
        saves ? play_fsdp2_save(player) : play_fsdp2_load(player);
    } else if (request.subject == Subject::model) {
        saves ? play_fsdp1_model_save(player) : play_fsdp1_model_load(player);
    } else {
        saves ? play_fsdp1_optimizer_save(player) : play_fsdp1_optimizer_load(player);
    }
    return player.finish();
}

}  // namespace fsdplan
