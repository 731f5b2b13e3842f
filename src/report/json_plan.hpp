#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fsdplan/planner.hpp"
#include "report/json_writer.hpp"

// Members of the JSON of results that are about plans.
namespace fsdplan {

void write_verdict(JsonWriter& out, const Verdict& verdict);
/// An object of option and value.
void write_settings(JsonWriter& out, const std::vector<std::pair<std::string, std::string>>& settings);
/// The members of one plan, inside an object that the caller begins and ends; `with_rows`: also the unit of
/// each module.
void write_plan_members(JsonWriter& out, const SweepQuestion& question, const PlanResult& plan,
                        bool with_rows);
/// The same as an object.
void write_plan(JsonWriter& out, const SweepQuestion& question, const PlanResult& plan, bool with_rows);
/// Name, class, parent and size of every module.
void write_modules(JsonWriter& out, const ModuleTree& tree);

}  // namespace fsdplan
