#pragma once

#include "base/json.hpp"
#include "verify/case_report.hpp"
#include "verify/runtime_case.hpp"

namespace fsdplan {

/// Compares the layout of every unit: what is in it, in which order, how it is padded and sharded, in which
/// dtypes. `units` is the recording's list.
void compare_units(const json::Value& units, const ModuleTree& tree, const RuntimeCase& recorded,
                   CaseReport& report);

}  // namespace fsdplan
