#pragma once

#include <string>

#include "fsdplan/frontend.hpp"

// FrontendInfo::write of the front ends that have one.
namespace fsdplan::frontend {

std::string write_accelerate(const PlanToWrite& plan);
std::string write_torchtitan(const PlanToWrite& plan);
std::string write_deepspeed(const PlanToWrite& plan);

/// What none of the settings say, for a comment: "batch 1, 4096 tokens, …".
std::string left_to_the_script(const TrainingJob& job);

}  // namespace fsdplan::frontend
