#pragma once

#include <string>

#include "fsdplan/planner.hpp"

// What reports for a terminal say about one simulated step.
namespace fsdplan {

/// Whether it runs, fits, or what it lacks.
std::string step_verdict(const StepResult& result, const Cluster& cluster);
/// Step time, stragglers, and what compute waits for.
std::string time_lines(const StepResult& result);
/// Allocated, reserved and process bytes at the peak.
std::string memory_lines(const StepResult& result);
/// What is alive there.
std::string live_lines(const StepResult& result, const ModuleTree& tree);

}  // namespace fsdplan
