#include "checkpoint/reasons.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace fsdplan {
namespace {

using Reason = std::pair<std::string_view, std::string_view>;

constexpr std::array reasons{
    Reason{"sharded_tensor_other_world",
           "a pickled ShardedTensor remembers the number of ranks it was made on and refuses to unpickle on "
           "another"},
    Reason{"sharded_tensor_where_dtensor_wanted",
           "the model was built with a device mesh and expects DTensors; the file holds ShardedTensors"},
    Reason{"dtensor_where_sharded_tensor_wanted",
           "the model was built without a device mesh and expects ShardedTensors; the file holds others"},
    Reason{"dtensor_other_mesh", "the DTensors in the file lie on another mesh than the model's"},
    Reason{"dcp_local_reshard_in_place",
           "DCP would have to put a flat shard together inside the live parameter, which autograd forbids"},
    Reason{"dcp_size_mismatch", "the checkpoint has the key with another size of the whole tensor"},
    Reason{
        "dcp_old_layout_guess",
        "a rank owns no rows of some ShardedTensor; DCP misses its key, takes the checkpoint for one of an "
        "old release and asks for a key of that"},
    Reason{"dcp_missing_key", "the model or its optimizer asks DCP for a key that the checkpoint lacks"},
    Reason{"local_with_mesh", "LOCAL_STATE_DICT does not work on a model built with a device mesh"},
    Reason{"offload_on_cpu_compute",
           "on a CPU device the offloaded unit is an alias of the gathered one, whose memory is then freed"},
    Reason{
        "segmentation_fault",
        "on a CPU device the offloaded unit is an alias of the gathered one; it is read after it was freed"},
    Reason{"optimizer_group_size",
           "the saved parameter group lists another number of parameters than the optimizer has"},
    Reason{"optimizer_name_not_in_model",
           "the saved optimizer state and the optimizer differ in a name: of a parameter, of a state, or the "
           "file has no optimizer"},
    Reason{"optimizer_keyed_by_number",
           "the saved optimizer state is filed by position; this loader looks parameters up by name"},
    Reason{"dsd_missing_optimizer_state",
           "a trainable parameter has no saved optimizer state, which the strict check refuses"},
    Reason{"file_absent", "a file that the loader wants was not written by this way of saving"},
    Reason{"safetensors_shared_memory", "two names share memory, and safetensors will not write it twice"},
    Reason{"optimizer_state_of_another_rank",
           "the optimizer holds states of another rank's parameters; the next gather refuses them"},
    Reason{"optimizer_state_of_another_cut",
           "the optimizer holds pieces that were cut for other units or another number of ranks; the next "
           "gather refuses them"},
    Reason{"local_unit_missing", "the file has no flat parameter for one of the model's units"},
    Reason{"local_shard_size", "the flat shard in the file is longer than the unit's shard"},
    Reason{"process_killed",
           "tied parameters are one on rank 0 and two elsewhere, so the ranks broadcast different sizes"},
    Reason{"other", "PyTorch refuses it; see the class"},
};

constexpr std::array complaints{
    Reason{"missing", "keys that the model needs are absent"},
    Reason{"unexpected", "there are keys that the model does not know"},
    Reason{"size", "a tensor has another shape"},
    Reason{"copy",
           "a value cannot be copied into the parameter (a piece where a whole tensor belongs, or the "
           "other way round)"},
};

}  // namespace

std::string reason_of(std::string_view code) {
    constexpr std::string_view module_load = "module_load:";
    if (code.starts_with(module_load)) {
        std::string text = "Module.load_state_dict: ";
        const char* between = "";
        for (const auto& [word, meaning] : complaints) {
            if (code.find(word) != std::string_view::npos) {
                text += between + std::string(meaning);
                between = "; ";
            }
        }
        return text;
    }
    const auto found = std::ranges::find(reasons, code, &Reason::first);
    return found == reasons.end() ? std::string() : std::string(found->second);
}

}  // namespace fsdplan
