#pragma once

#include <string>

#include "fsdplan/checkpoint_plan.hpp"
#include "report/json_writer.hpp"

// What reports say about saving.
namespace fsdplan {

/// One line a format.
std::string checkpoint_table(const CheckpointPlan& plan);

/// `"formats"`, `"resident_bytes"` and `"save_verdict"`, as members.
void write_checkpoint(JsonWriter& out, const CheckpointPlan& plan);

}  // namespace fsdplan
