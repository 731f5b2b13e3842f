#pragma once

#include "fsdplan/wrap.hpp"
#include "wrap/resolved.hpp"

namespace fsdplan {

/// Section 7 of the rules in docs/wrapping.md: fully_shard calls in the user's order, and what the first
/// forward through the last call's module would refuse.
WrapPlan apply_fully_shard(const ModuleTree& tree, const PolicySpec& spec, const Resolved& resolved);

}  // namespace fsdplan
