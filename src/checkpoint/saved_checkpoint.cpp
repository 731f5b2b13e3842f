#include "checkpoint/saved_checkpoint.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

std::vector<std::int64_t> all_ranks(const CheckpointSide& side) {
    std::vector<std::int64_t> ranks;
    for (std::int64_t rank = 0; rank < side.world(); ++rank) {
        ranks.push_back(rank);
    }
    return ranks;
}

/// Ranks that hold a full state dict.
std::vector<std::int64_t> keepers(const CheckpointSide& side, const SaveRoute& route) {
    if (route.name == "fsdp1_full" && !side.rank0_only) {
        return all_ranks(side);
    }
    std::vector<std::int64_t> ranks;  // the first of each shard group
    for (std::int64_t rank = 0; rank < side.world(); rank += side.layout.shard_ranks()) {
        ranks.push_back(rank);
    }
    return ranks;
}

ValueKind value_kind(const StateLayout& layout, const SaveRoute& route) {
    // Without a context manager, FSDP1 hands out whole tensors and FSDP2 its DTensors.
    const bool pieces = route.form != StateRequest::Form::full ||
                        (layout.runtime == StateRuntime::fsdp2 && route.optimizer == StateKeys::by_position);
    if (layout.runtime == StateRuntime::plain || !layout.sharded || !pieces) {
        return ValueKind::whole;
    }
    return layout.device_mesh ? ValueKind::dtensor : ValueKind::sharded_tensor;
}

}  // namespace

Failure on_all_ranks(const CheckpointSide& side, std::string stage, std::string error_class,
                     std::string code) {
    return {.stage = std::move(stage),
            .error_class = std::move(error_class),
            .code = std::move(code),
            .ranks = all_ranks(side)};
}

Failure inside_dcp(const CheckpointSide& side, std::string stage, std::string cause_class, std::string code) {
    Failure failure = on_all_ranks(side, std::move(stage), "CheckpointException", std::move(code));
    failure.cause_class = std::move(cause_class);
    return failure;
}

void RankFailures::raise(std::int64_t rank, const Failure& failure) {
    if (!first_) {
        first_ = failure;
    }
    ranks_.push_back(rank);
}

Failure RankFailures::result() const {
    Failure failure = *first_;
    failure.ranks = ranks_;
    return failure;
}

Names::Names(const StateLayout& layout) : layout_(layout), first_(layout.tensors.size()) {
    for (const StateEntry& entry : layout.entries) {
        tensor_of_.emplace(entry.name, entry.tensor);
        if (first_[entry.tensor].empty()) {
            first_[entry.tensor] = entry.name;
        } else {
            has_ties_ = true;
        }
    }
}

const StateTensor* Names::find(std::string_view name) const {
    const auto found = tensor_of_.find(name);
    return found == tensor_of_.end() ? nullptr : &layout_.tensors[found->second];
}

std::int64_t Names::tensor(std::string_view name) const {
    const auto found = tensor_of_.find(name);
    return found == tensor_of_.end() ? -1 : static_cast<std::int64_t>(found->second);
}

bool lists_units(const StateLayout& layout) {
    return layout.runtime == StateRuntime::fsdp1 && !layout.use_orig_params;
}

std::vector<std::size_t> optimizer_list(const StateLayout& layout) {
    std::vector<std::size_t> list;
    if (lists_units(layout)) {
        for (std::size_t u = 0; u < layout.units.size(); ++u) {
            if (layout.tensors[layout.units[u].tensors.front()].trainable) {
                list.push_back(u);
            }
        }
        return list;
    }
    for (std::size_t t = 0; t < layout.tensors.size(); ++t) {
        if (layout.tensors[t].trainable) {
            list.push_back(t);
        }
    }
    return list;
}

SavedCheckpoint::SavedCheckpoint(const CheckpointSide& side, const SaveRoute& by)
    : from(side), route(by), names(side.layout), kind(value_kind(side.layout, by)) {
    const StateLayout& layout = side.layout;
    flat = by.form == StateRequest::Form::local && layout.sharded;
    keys = side.has_optimizer() ? by.optimizer : StateKeys::none;
    const bool by_position = keys == StateKeys::by_position;
    if (by_position) {
        optimizer_list = fsdplan::optimizer_list(layout);
        lists_units = fsdplan::lists_units(layout);
    } else if (fsdplan::lists_units(layout)) {  // names, unit by unit
        for (const std::size_t u : fsdplan::optimizer_list(layout)) {
            optimizer_list.insert(optimizer_list.end(), layout.units[u].tensors.begin(),
                                  layout.units[u].tensors.end());
        }
    } else {
        optimizer_list = fsdplan::optimizer_list(layout);
    }
    states_overwritten = side.device == StateDevice::cpu && side.offload && by.name == "fsdp1_full_dcp" &&
                         layout.sharded && layout.use_orig_params;
}

bool SavedCheckpoint::has_name(const StateEntry& entry) const {
    return route.name != "safetensors_save_model" || names.first(entry.tensor) == entry.name;
}

bool SavedCheckpoint::lists(std::string_view name) const {
    const std::int64_t tensor = names.tensor(name);
    return tensor >= 0 && from.layout.tensors[static_cast<std::size_t>(tensor)].trainable &&
           names.first(static_cast<std::size_t>(tensor)) == name;
}

std::int64_t SavedCheckpoint::states_per_tensor() const {
    const OptimizerStates& states = from.layout.optimizer;
    return static_cast<std::int64_t>(states.tensors.size()) + (states.has_step ? 1 : 0);
}

std::optional<Failure> save_failure(const CheckpointSide& from, const SaveRoute& route) {
    const StateLayout& layout = from.layout;
    if (from.mixed_requires_grad && lists_units(layout)) {
        return on_all_ranks(from, "build", "ValueError", "other");
    }
    if (layout.tied_across_units) {
        return on_all_ranks(from, "train", "RuntimeError", "other");
    }
    const StateRequest request{.form = route.form};
    if (const auto refused = state_refusal(layout, request)) {
        return on_all_ranks(from, "save", refused->error_class, refused->code);
    }
    if (route.staged) {
        if (const auto refused = staging_refusal(layout)) {
            return on_all_ranks(from, "save", refused->error_class, refused->code);
        }
    }
    const bool ties = Names(layout).has_ties();
    if (route.container == Container::hf_safetensors && ties && layout.runtime == StateRuntime::fsdp2) {
        return inside_dcp(from, "save", "RuntimeError", "safetensors_shared_memory");
    }
    const bool unsharded = layout.runtime != StateRuntime::fsdp1 && layout.shard_ranks() == 1;
    if (route.name == "safetensors" && unsharded && ties) {
        Failure failure = on_all_ranks(from, "save", "RuntimeError", "safetensors_shared_memory");
        failure.ranks = {0};
        return failure;
    }
    // With a CPU compute device the "copy" of a gathered unit is the unit, whose storage is then freed.
    if (route.offload_breaks_model && from.offload && from.device == StateDevice::cpu &&
        layout.runtime == StateRuntime::fsdp1 && layout.sharded) {
        Failure failure = layout.use_orig_params
                              ? on_all_ranks(from, "save", "ProcessKilled", "segmentation_fault")
                              : on_all_ranks(from, "save", "RuntimeError", "offload_on_cpu_compute");
        failure.ranks = keepers(from, route);
        return failure;
    }
    return std::nullopt;
}

}  // namespace fsdplan
