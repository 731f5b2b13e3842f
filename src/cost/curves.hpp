#pragma once

#include <vector>

#include "base/json.hpp"
#include "fsdplan/cost.hpp"

namespace fsdplan {

/// The "curves" of a cluster's or a calibration's file; throws Error(input).
std::vector<CollectiveCurve> read_curves(const json::Value& array);

/// Puts what was measured in front, in place of the cluster's own curves of the same groups.
void put_in_front(std::vector<CollectiveCurve> measured, std::vector<CollectiveCurve>& curves);

}  // namespace fsdplan
