#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/checkpoint.hpp"

// Whether what one program saves loads into another, as PyTorch 2.13 decides it.
namespace fsdplan {

/// What lies on disk.
enum class Container : std::uint8_t {
    full_file,      ///< one torch.save file, of rank 0
    rank_files,     ///< a torch.save file of every rank
    dcp,            ///< a folder of torch.distributed.checkpoint
    safetensors,    ///< model.safetensors
    hf_safetensors  ///< safetensors files that DCP wrote
};

/// What the states of an optimizer are filed under.
enum class StateKeys : std::uint8_t { none, by_name, by_position, by_flattened_name };

/// A way to save: an API and what becomes of the dict.
struct SaveRoute {
    std::string_view name;  ///< "fsdp1_full", …: those of docs/checkpoints.md
    std::string_view help;
    Container container{};
    /// How FSDP hands the model out; plain models hand out plain tensors in any case.
    StateRequest::Form form = StateRequest::Form::full;
    StateKeys optimizer = StateKeys::by_name;
    bool offload_breaks_model = false;  ///< takes the model with the side's `offload`
    bool staged = false;                ///< copied ahead, then written
};
std::span<const SaveRoute> save_routes();
/// nullptr for a name that is not known.
const SaveRoute* find_save_route(std::string_view name);

/// Who puts values into the model and the optimizer.
enum class ModelLoader : std::uint8_t {
    module,         ///< Module.load_state_dict of whole tensors or of what is there
    fsdp1_full,     ///< … under FULL_STATE_DICT
    fsdp1_sharded,  ///< … under SHARDED_STATE_DICT
    fsdp1_local,    ///< … under LOCAL_STATE_DICT
    version_neutral_full,
    version_neutral_broadcast,
    version_neutral_pieces,
    rank0_sync  ///< rank 0's plain model, broadcast when it is wrapped
};
enum class OptimizerLoader : std::uint8_t { none, raw, fsdp1, fsdp1_from_dcp, version_neutral, joint_dcp };

struct LoadRoute {
    std::string_view name;
    std::string_view help;
    Container container{};
    ModelLoader model{};
    OptimizerLoader optimizer{};
    bool converts = false;    ///< dcp_to_torch_save first
    bool flat_names = false;  ///< asks for flattened optimizer keys
    bool rank0_optimizer = false;
};
std::span<const LoadRoute> load_routes();
const LoadRoute* find_load_route(std::string_view name);

/// One side: a model under sharding and how it is saved or loaded.
struct CheckpointSide {
    StateLayout layout;
    std::string optimizer = "adamw";  ///< "none": only the model
    bool strict = true;
    bool offload = false;              ///< offload_to_cpu of full state dicts
    bool rank0_only = true;            ///< of FSDP1's full ones
    bool checkpoint_wrapper = false;   ///< activation checkpoint wrappers are around blocks
    bool mixed_requires_grad = false;  ///< a flat parameter holds frozen and trainable ones
    StateDevice device = StateDevice::gpu;

    std::int64_t world() const { return layout.mesh.ranks(); }
    bool has_optimizer() const { return optimizer != "none"; }
};

enum class Outcome : std::uint8_t { ok, error, silent };
/// "ok", "error", "silent"
std::string_view name(Outcome outcome);

struct Compatibility {
    Outcome outcome = Outcome::ok;
    std::string stage;  ///< of an error: "build", "save", "load_model", "load_optim"; "after_load": silent
    std::string error_class;  ///< PyTorch's
    std::string cause_class;  ///< inside a CheckpointException
    std::string code;         ///< stable word of ours, see docs/checkpoints.md
    std::string reason;
    std::vector<std::int64_t> ranks;  ///< on which it is raised; the others wait
    std::int64_t model_tensors = 0;   ///< in the checkpoint
    std::int64_t model_wrong = 0;     ///< names with another value than was saved
    std::int64_t optimizer_tensors = 0;
    std::int64_t optimizer_wrong = 0;
    std::vector<std::string>
        wrong_kinds;                 ///< "absent", "optimizer_kind", "shape", "unusable", "value", sorted
    std::vector<std::string> casts;  ///< "float32->bfloat16"
    bool loses_bits = false;         ///< some cast does
    std::int64_t untouched = 0;      ///< tensors of the model that are not in the checkpoint
    std::vector<std::string> notes;
};

/// What happens when `from` is saved by `save` and `to` loads it by `load`.
/// Source: state_dict.md §8 and the code of PyTorch 2.13 that each rule names.
Compatibility compatibility(const CheckpointSide& from, const SaveRoute& save, const CheckpointSide& to,
                            const LoadRoute& load);

/// The way that does work, in a sentence; empty when this one does.
std::string remedy(const Compatibility& found, const CheckpointSide& from, const SaveRoute& save,
                   const CheckpointSide& to);

/// Two shapes of one name, as a failed load reports them.
struct ShapeMismatch {
    std::string saved;       ///< "full", "flat local shard", "rows of one rank", "other"
    std::string current;     ///< the same of the model
    std::int64_t ranks = 1;  ///< over which the smaller one is a piece of the larger; 0: it is none
    std::string remedy;      ///< empty: the shapes are equal
};
/// Source: what named_parameters() shows under FSDP1 with original parameters outside of a state_dict_type
/// context, and DTensor.to_local().
ShapeMismatch explain_mismatch(std::span<const std::int64_t> saved, std::span<const std::int64_t> current);

}  // namespace fsdplan
