#pragma once

#include "base/json.hpp"
#include "verify/case_report.hpp"
#include "verify/zero_case.hpp"

// What a rank of DeepSpeed stores, as recorded beside our own layout. `recording` is the file's root.
namespace fsdplan {

/// Compares the flat groups of stages 0 to 2, where they were recorded.
void compare_zero_groups(const json::Value& recording, const ZeroCase& run, CaseReport& report);

/// Compares the partitions and sub-groups of stage 3.
void compare_zero_partitions(const json::Value& recording, const ZeroCase& run, CaseReport& report);

}  // namespace fsdplan
