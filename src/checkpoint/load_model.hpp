#pragma once

#include "checkpoint/saved_checkpoint.hpp"

namespace fsdplan {

/// Why the model cannot be loaded, if so.
std::optional<Failure> model_failure(const SavedCheckpoint& saved, const CheckpointSide& to,
                                     const LoadRoute& route);

/// Whether every rank gets rank 0's rows: its DTensors, of which each holds its own piece only.
bool spreads_first_piece(const SavedCheckpoint& saved, const CheckpointSide& to, const LoadRoute& route);

/// Fills in what the model holds afterwards.
void judge_model(const SavedCheckpoint& saved, const CheckpointSide& to, const LoadRoute& route,
                 Compatibility& out);

bool same_mesh(const StateLayout& a, const StateLayout& b);

}  // namespace fsdplan
