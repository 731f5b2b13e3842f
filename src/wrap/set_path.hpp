#pragma once

#include "wrap/wrapped_model.hpp"

namespace fsdplan {

/// Section 4 of the rules in docs/wrapping.md: ModuleWrapPolicy and CustomPolicy name a set of modules, which
/// are wrapped in post-order, each once. The root is left for the caller, unless it stops.
void wrap_chosen_set(WrappedModel& model, const PolicySpec& spec);

/// FSDP around the modules of `spec.calls`, one after the other, as a user would write it by hand.
void wrap_by_hand(WrappedModel& model, const PolicySpec& spec);

}  // namespace fsdplan
