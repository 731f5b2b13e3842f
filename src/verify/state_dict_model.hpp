#pragma once

#include <optional>
#include <string>

#include "base/json.hpp"
#include "fsdplan/checkpoint.hpp"

// The models of recordings of checkpoints (docs/formats.md, "Recordings of checkpoints"): a list of tensors,
// how units are drawn, and knobs that change both.
namespace fsdplan {

/// All knobs of one side of a case.
struct StateDictKnobs {
    std::int64_t fsdp = 1;  ///< 0: not sharded
    std::int64_t world = 2;
    std::string wrap;
    Strategy strategy = Strategy::full_shard;
    bool use_orig_params = true;
    bool device_mesh = false;
    bool tied = false;
    DType dtype = DType::float32;
    bool mixed_precision = false;
    std::string optimizer;
    std::string freeze;
    std::int64_t blocks = 0;  ///< repetitions of the model's numbered module; 0: as listed
    bool offload = false;
    bool rank0_only = true;
    bool strict = true;
    bool ckpt_wrap = false;
};

/// What `side` says, for the rest what `defaults` says.
StateDictKnobs state_dict_knobs(const json::Value& side, const json::Value& defaults);

/// The model that the file describes.
class RecordedStateModel {
public:
    /// `model`: the file's "model".
    explicit RecordedStateModel(const json::Value& model);

    ModelGraph graph(const StateDictKnobs& knobs) const;
    StateLayout layout(const StateDictKnobs& knobs) const;

private:
    struct Listed {
        std::string name;
        std::vector<std::int64_t> shape;
        bool is_buffer = false;
    };
    struct Wrapped {
        std::string pattern;
        bool fsdp1_only = false;
    };
    std::vector<Listed> with_blocks(std::int64_t blocks) const;
    PolicySpec policy(const ModuleTree& tree, const StateDictKnobs& knobs) const;

    std::vector<Listed> tensors_;
    std::vector<std::string> tied_pair_;
    std::vector<std::pair<std::string, std::vector<Wrapped>>> wraps_;
};

}  // namespace fsdplan
