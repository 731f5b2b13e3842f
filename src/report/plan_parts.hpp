#pragma once

#include <string>

#include "fsdplan/planner.hpp"

// What a report for a terminal says about one plan.
namespace fsdplan {

/// How many units, of which classes; the largest and the root.
std::string units_line(const PlanResult& plan);
/// What PyTorch would refuse or do in silence.
std::string problems(const PlanResult& plan);
/// What memory holds at the peak, line by line.
std::string memory_table(const PlanResult& plan);
/// Collectives of a step, also under other strategies, and the step's time.
std::string traffic(const PlanResult& plan);
/// What to change next.
std::string next_lines(const Verdict& verdict);

}  // namespace fsdplan
