#pragma once

#include <array>
#include <string_view>

#include "fsdplan/planner.hpp"
#include "report/json_writer.hpp"

// Members of the JSON of results that are about one simulated step.
namespace fsdplan {

/// {"value": …, "low": …, "high": …}
void write_estimate(JsonWriter& out, std::string_view key, const Estimate& e);
/// Bytes by name of the category.
void write_categories(JsonWriter& out, std::string_view key,
                      const std::array<std::int64_t, category_count>& bytes);
/// What compute waits for, by cause.
void write_waits(JsonWriter& out, const StepResult& result);
/// The peak and what is alive there.
void write_peak(JsonWriter& out, const StepResult& result, const ModuleTree& tree);

}  // namespace fsdplan
