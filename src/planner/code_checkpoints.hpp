#pragma once

#include <optional>
#include <string>

#include "fsdplan/job.hpp"

namespace fsdplan {

/// Python that checkpoints a job's activations. `before` and `after` stand round the code that shards.
struct CheckpointCode {
    std::string imports;
    std::string definitions;  ///< of functions
    std::string before;
    std::string after;
    bool wraps_before = false;  ///< modules are in wrappers when they are sharded
};
/// `is_fsdp1` decides where wrappers go: FullyShardedDataParallel is a module around the user's,
/// fully_shard is not. `unit_paths`: modules that become units. Nothing where it takes too many lines.
std::optional<CheckpointCode> checkpoint_code(const ModuleTree& tree, const TrainingJob& job, bool is_fsdp1,
                                              const std::vector<std::string>& unit_paths);

}  // namespace fsdplan
