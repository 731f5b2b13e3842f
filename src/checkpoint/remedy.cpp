#include <initializer_list>

#include "fsdplan/compatibility.hpp"

namespace fsdplan {
namespace {

constexpr std::string_view any_ranks =
    "save through DCP (get_state_dict, dcp.save) and load with dcp.load and set_state_dict: that fits "
    "any number of ranks, units and FSDP version";

std::string on_the_same_ranks(const CheckpointSide& from) {
    return "load it once more on " + std::to_string(from.world()) +
           " ranks in the configuration that saved it, and save it through DCP; that loads everywhere";
}

/// A loader that takes what was written.
std::string loader_of(const SaveRoute& save, const CheckpointSide& to) {
    const bool wrapped = to.layout.runtime != StateRuntime::plain;
    switch (save.container) {
        case Container::full_file:
            return wrapped ? "load the file with set_state_dict, full_state_dict=True and "
                             "broadcast_from_rank0=True"
                           : "load the file with torch.load";
        case Container::rank_files:
            return "load the file of each rank with the loader of its kind, on as many ranks";
        case Container::dcp:
            return wrapped ? "load the folder with dcp.load and set_state_dict"
                           : "convert the folder with dcp_to_torch_save, then torch.load";
        case Container::safetensors:
            return "load the file with safetensors load_file and set_model_state_dict, full_state_dict=True";
        case Container::hf_safetensors:
            return "load the folder with DCP's HuggingFaceStorageReader";
    }
    return "";
}

bool is_any(std::string_view code, std::initializer_list<std::string_view> codes) {
    for (const std::string_view one : codes) {
        if (code == one) {
            return true;
        }
    }
    return false;
}

std::string remedy_of_error(const Compatibility& found, const CheckpointSide& from, const SaveRoute& save,
                            const CheckpointSide& to) {
    const std::string_view code = found.code;
    if (found.stage == "save" || found.stage == "build" || found.stage == "train") {
        return "save in another way: " + std::string(any_ranks);
    }
    if (code == "file_absent") {
        return loader_of(save, to);
    }
    const bool bound_to_ranks =
        save.container == Container::rank_files || save.form == StateRequest::Form::local;
    if (bound_to_ranks || code == "dtensor_other_mesh" || code == "dcp_local_reshard_in_place") {
        return on_the_same_ranks(from);
    }
    if (code == "dcp_old_layout_guess") {
        return "give FSDP1 a device mesh, load with the older SHARDED_STATE_DICT route or with FSDP2, or "
               "use ranks that all own rows of every parameter";
    }
    if (is_any(code, {"optimizer_keyed_by_number", "optimizer_state_of_another_rank",
                      "optimizer_state_of_another_cut"})) {
        return "load the model alone and start the optimizer anew; from now on save the optimizer with "
               "get_optimizer_state_dict, which files it by name";
    }
    if (is_any(code, {"dsd_missing_optimizer_state", "optimizer_group_size", "optimizer_name_not_in_model",
                      "dcp_missing_key"}) &&
        found.stage == "load_optim") {
        return "load the model alone, or with strict=False where the API has it; make optimizer, ties "
               "and frozen parameters as they were to load the optimizer too";
    }
    if (code.starts_with("module_load:") && code.find("copy") != std::string_view::npos) {
        return loader_of(save, to);
    }
    if (code.starts_with("module_load:") || code == "dcp_missing_key" || code == "dcp_size_mismatch") {
        return "the models differ: build the one that was saved, or load with strict=False and check what is "
               "left out";
    }
    return std::string(any_ranks);
}

std::string remedy_of_silence(const Compatibility& found, const CheckpointSide& to) {
    if (found.stage == "after_load") {
        return "load the model alone and start the optimizer anew; save the optimizer by name "
               "(get_optimizer_state_dict, FSDP.optim_state_dict)";
    }
    if (found.loses_bits) {
        return "keep the dtype that was saved, and compute in the lower one through mixed precision";
    }
    if (found.optimizer_wrong > 0) {
        return to.layout.mesh.replicate > 1 ? "load with dcp.load and set_state_dict instead"
                                            : "save and load the optimizer by name "
                                              "(get_optimizer_state_dict, set_optimizer_state_dict)";
    }
    return "compare the names before and after: what is absent or left untouched is listed";
}

}  // namespace

std::string remedy(const Compatibility& found, const CheckpointSide& from, const SaveRoute& save,
                   const CheckpointSide& to) {
    switch (found.outcome) {
        case Outcome::ok:
            return "";
        case Outcome::error:
            return remedy_of_error(found, from, save, to);
        case Outcome::silent:
            return remedy_of_silence(found, to);
    }
    return "";
}

}  // namespace fsdplan
