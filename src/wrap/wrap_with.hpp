#pragma once

#include <optional>

#include "wrap/recursion.hpp"

namespace fsdplan {

/// wrap() of an FSDP1 policy with its names looked up and, for a sweep, another threshold.
WrapPlan wrap_with(const ModuleTree& tree, const PolicySpec& spec, const Resolved& resolved,
                   std::optional<std::int64_t> min_num_params, BelowThreshold& below);

}  // namespace fsdplan
