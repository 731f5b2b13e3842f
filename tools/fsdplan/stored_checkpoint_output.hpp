#pragma once

#include <string>

#include "fsdplan/stored_checkpoint.hpp"

namespace fsdplan::cli {

/// What `inspect` says of a checkpoint. `tensors`: list each of them too.
std::string checkpoint_text(const StoredCheckpoint& checkpoint, bool tensors);
std::string checkpoint_json(const StoredCheckpoint& checkpoint);

}  // namespace fsdplan::cli
