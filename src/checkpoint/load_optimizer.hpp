#pragma once

#include "checkpoint/saved_checkpoint.hpp"

namespace fsdplan {

/// Why the optimizer cannot be loaded, if so; else fills in what it holds afterwards. The model has been
/// loaded.
std::optional<Failure> load_optimizer(const SavedCheckpoint& saved, const CheckpointSide& to,
                                      const LoadRoute& route, Compatibility& out);

/// The same for Optimizer.load_state_dict, which goes by the order of the list.
std::optional<Failure> load_raw_optimizer(const SavedCheckpoint& saved, const CheckpointSide& to,
                                          const LoadRoute& route, Compatibility& out);

/// Adam looks for its step counter in every state that it gets.
bool misses_step(const SavedCheckpoint& saved, const CheckpointSide& to);

/// Names of states that the target's optimizer keeps and the checkpoint does not have.
std::int64_t missing_kinds(const SavedCheckpoint& saved, const CheckpointSide& to);

void add_wrong_states(Compatibility& out, std::int64_t count, const char* kind);

}  // namespace fsdplan
