#pragma once

#include <vector>

#include "base/json.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/wrap.hpp"

namespace fsdplan {

/// Parameters that no computation of a recorded FSDP2 run read. A module that calls others may read its own
/// parameters or not; the model's file does not say, the units' counts of gradients do.
/// `recording` is the file's root.
std::vector<TensorIndex> unread_parameters(const json::Value& recording, const ModuleTree& tree,
                                           const WrapPlan& plan);

}  // namespace fsdplan
