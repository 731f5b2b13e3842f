#include <algorithm>
#include <array>

#include "fsdplan/checkpoint_cost.hpp"

namespace fsdplan {
namespace {

using enum StateRequest::Form;
using enum CheckpointWriter;

constexpr StateRequest model(StateRequest::Form form, bool offload = false, bool rank0_only = false) {
    return {
        .subject = StateRequest::Subject::model, .form = form, .offload = offload, .rank0_only = rank0_only};
}

constexpr StateRequest states(StateRequest::Form form, bool offload = false, bool rank0_only = false) {
    return {.subject = StateRequest::Subject::optimizer,
            .form = form,
            .offload = offload,
            .rank0_only = rank0_only};
}

constexpr StateRuntime v1 = StateRuntime::fsdp1;
constexpr StateRuntime v2 = StateRuntime::fsdp2;
constexpr StateRuntime none = StateRuntime::plain;

// FSDP1's optimizer dicts are offloaded unless they are told not to be, the model's are not.
constexpr std::array formats{
    CheckpointFormat{"full", "FULL_STATE_DICT on every rank, on the device", v1, model(full),
                     states(full, true), rank0},
    CheckpointFormat{"full,offload", "FULL_STATE_DICT on every rank, offload_to_cpu", v1, model(full, true),
                     states(full, true), rank0},
    CheckpointFormat{"full,rank0", "FULL_STATE_DICT, rank0_only, on the device", v1, model(full, false, true),
                     states(full, false, true), rank0},
    CheckpointFormat{"full,offload,rank0", "FULL_STATE_DICT, offload_to_cpu and rank0_only", v1,
                     model(full, true, true), states(full, true, true), rank0},
    CheckpointFormat{"sharded", "SHARDED_STATE_DICT, a torch.save file of each rank", v1, model(sharded),
                     states(sharded), every_rank},
    CheckpointFormat{"sharded,offload", "SHARDED_STATE_DICT, offload_to_cpu, a torch.save file of each rank",
                     v1, model(sharded, true), states(sharded, true), every_rank},
    CheckpointFormat{"local", "LOCAL_STATE_DICT, a torch.save file of each rank", v1, model(local),
                     states(local), every_rank},
    CheckpointFormat{"dcp", "SHARDED_STATE_DICT through DCP", v1, model(sharded), states(sharded), dcp},
    CheckpointFormat{"dcp,offload", "SHARDED_STATE_DICT, offload_to_cpu, through DCP", v1,
                     model(sharded, true), states(sharded, true), dcp},
    CheckpointFormat{"dcp,async", "SHARDED_STATE_DICT through dcp.async_save", v1, model(sharded),
                     states(sharded), dcp, Staging::pageable},
    CheckpointFormat{"safetensors", "SHARDED_STATE_DICT through DCP as safetensors, the model alone", v1,
                     model(sharded), states(sharded), dcp_safetensors},
    CheckpointFormat{"full", "get_state_dict, full_state_dict on every rank, on the device", v2, model(full),
                     states(full), rank0},
    CheckpointFormat{"full,offload", "get_state_dict, full_state_dict and cpu_offload: rank 0 alone", v2,
                     model(full, true), states(full, true), rank0},
    CheckpointFormat{"sharded", "state_dict() as it is, a torch.save file of each rank", v2, model(sharded),
                     states(sharded), every_rank},
    CheckpointFormat{"dcp", "get_state_dict through DCP", v2, model(sharded), states(sharded), dcp},
    CheckpointFormat{"dcp,offload", "get_state_dict with cpu_offload through DCP", v2, model(sharded, true),
                     states(sharded, true), dcp},
    CheckpointFormat{"dcp,async", "get_state_dict through dcp.async_save", v2, model(sharded),
                     states(sharded), dcp, Staging::pageable},
    CheckpointFormat{"dcp,async,pinned", "the same with a stager that keeps its pinned copy", v2,
                     model(sharded), states(sharded), dcp, Staging::kept},
    CheckpointFormat{"safetensors", "get_state_dict through DCP as safetensors, the model alone", v2,
                     model(sharded), states(sharded), dcp_safetensors},
    CheckpointFormat{"full", "state_dict() of the whole model, rank 0 calls torch.save", none, model(full),
                     states(full), rank0},
    CheckpointFormat{"dcp", "the same through DCP", none, model(full), states(full), dcp},
    CheckpointFormat{"dcp,async", "the same through dcp.async_save", none, model(full), states(full), dcp,
                     Staging::pageable},
};

}  // namespace

std::span<const CheckpointFormat> checkpoint_formats() {
    return formats;
}

const CheckpointFormat& checkpoint_format(std::string_view type, StateRuntime runtime,
                                          std::string_view option) {
    std::vector<std::string> known;
    for (const CheckpointFormat& format : formats) {
        if (format.runtime != runtime) {
            continue;
        }
        if (format.type == type) {
            return format;
        }
        known.emplace_back(format.type);
    }
    std::string list;
    for (const std::string& name : known) {
        list += (list.empty() ? "\"" : ", \"") + name + "\"";
    }
    throw Error(ErrorKind::input, std::string(option),
                "unknown type \"" + std::string(type) + "\"" + did_you_mean(type, known) +
                    "; this runtime has " + list);
}

}  // namespace fsdplan
