#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "fsdplan/verify.hpp"
#include "verify/memory_tracker_live.hpp"

namespace fsdplan {

/// Compares the peak and what is left after backward of each iteration, in total and by category, within 1 %
/// of the recorded peak. `is_fake`: under a FakeTensorMode, where the tracker's first step of the optimizer
/// is wrong. `name`: of the case.
void compare_tracked(const std::string& name, const json::Value& iterations, bool is_fake,
                     const std::vector<TrackedIteration>& got, Verification& out);

}  // namespace fsdplan
