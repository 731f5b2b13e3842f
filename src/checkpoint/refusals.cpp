#include "fsdplan/checkpoint.hpp"

namespace fsdplan {

std::optional<StateRefusal> state_refusal(const StateLayout& layout, const StateRequest& request) {
    // Unsharded, every type is FULL.
    if (layout.runtime != StateRuntime::fsdp1 || !layout.sharded ||
        request.form != StateRequest::Form::local || request.subject != StateRequest::Subject::model) {
        return std::nullopt;
    }
    if (layout.device_mesh) {
        return StateRefusal{"RuntimeError", "local_with_mesh",
                            "LOCAL_STATE_DICT cannot be used on a model built with a device mesh"};
    }
    if (layout.use_orig_params && request.direction == StateRequest::Direction::load) {
        return StateRefusal{"RuntimeError", "module_load:unexpected",
                            "with original parameters the dict has flat and original entries, and the strict "
                            "check refuses the surplus"};
    }
    return std::nullopt;
}

std::optional<StateRefusal> staging_refusal(const StateLayout& layout) {
    if (layout.runtime != StateRuntime::fsdp1 || !layout.sharded || layout.device_mesh) {
        return std::nullopt;
    }
    return StateRefusal{"RuntimeError", "other", "DefaultStager does not know how to copy a ShardedTensor"};
}

}  // namespace fsdplan
