#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "schedule/zero_partitions.hpp"
#include "verify/case_report.hpp"
#include "verify/zero_case.hpp"

// What DeepSpeed sends, as recorded beside our own events. `recording` is the file's root.
namespace fsdplan {

/// Compares what initialize() sends.
void compare_zero_construction(const json::Value& recording, const ZeroCase& run, CaseReport& report);

/// Compares iterations event by event. `module_paths`: what Event::module counts, in stage 3.
void compare_zero_iterations(const json::Value& recording, const ZeroCase& run,
                             const std::vector<std::vector<zero::Event>>& training,
                             std::span<const std::string> module_paths, CaseReport& report);

}  // namespace fsdplan
