#pragma once

#include "fsdplan/planner.hpp"
#include "report/json_writer.hpp"

namespace fsdplan {

/// The member "wrap_plan": units and settings as `tools/python/fsdplan` applies them to a model, and the
/// parameters of the model that they were made for.
void write_wrap_plan(JsonWriter& out, const ModuleTree& tree, const WrapPlan& plan, const TrainingJob& job);

}  // namespace fsdplan
