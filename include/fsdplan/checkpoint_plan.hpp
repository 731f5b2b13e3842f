#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fsdplan/checkpoint_cost.hpp"
#include "fsdplan/planner.hpp"

// Saving a plan's checkpoints while its training state is resident.
namespace fsdplan {

struct CheckpointPlan {
    std::string label;                ///< of the units, in words
    std::int64_t resident_bytes = 0;  ///< of a process between steps: states, context, NCCL
    std::int64_t budget_bytes = 0;
    std::vector<CheckpointCost> costs;       ///< of every format that the runtime has
    std::optional<std::size_t> recommended;  ///< index into `costs`
    std::optional<std::size_t> asked;        ///< of --save-type
    std::string verdict;                     ///< one sentence about training and saving
    bool fits = false;  ///< while training, and while saving as asked, or in some way when nothing was asked
};

/// What a user says about saving.
struct CheckpointWish {
    std::optional<std::string> type;  ///< a format's
    CheckpointStorage storage;
    bool with_optimizer = true;
};

/// Whether the state dicts of the job's runtime are described; DeepSpeed's engine writes its own.
bool has_state_dicts(const TrainingJob& job);

/// What stays in device memory between steps.
std::int64_t resident_bytes(const PlanResult& plan);

/// Throws Error(input) at --save-type for a type that the job's runtime does not have, and at --runtime for a
/// runtime without state dicts.
CheckpointPlan plan_checkpoint(const SweepQuestion& question, const TrainingJob& job, const PlanResult& plan,
                               const CheckpointWish& wish);

/// Whether a plan also fits while it saves as wished; true where nothing was wished.
bool fits_while_saving(const SweepQuestion& question, const TrainingJob& job, const PlanResult& plan,
                       const CheckpointWish& wish);

/// The format that accelerate and Trainer use for a `fsdp_state_dict_type`; empty: not one of theirs.
/// Source: accelerate 1.x, FullyShardedDataParallelPlugin.set_state_dict_type.
std::string_view accelerate_format(std::string_view state_dict_type, std::string_view runtime);

}  // namespace fsdplan
