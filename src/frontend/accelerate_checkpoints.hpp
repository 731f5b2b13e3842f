#pragma once

#include <string>
#include <vector>

#include "fsdplan/wrap.hpp"

namespace fsdplan::frontend {

/// What apply_activation_checkpointing() wraps when version 1 calls it with FSDP's own policy: it runs over
/// the sharded model, so that sizes are those of one rank's pieces. Paths in pre-order.
std::vector<std::string> checkpointed_after_sharding(const ModuleTree& tree, const PolicySpec& policy,
                                                     const WrapOptions& options);

}  // namespace fsdplan::frontend
