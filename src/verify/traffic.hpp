#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/schedule.hpp"
#include "verify/case_report.hpp"

// What recordings of collectives have in common.
namespace fsdplan {

/// "f32", "bf16", …; fails for another word.
DType recorded_dtype(const json::Value& value);
/// The recorders' word for a dtype.
std::string recorded_name(DType dtype);

/// Compares two lists line by line and reports the first line that differs.
void compare_lines(const std::string& where, const std::vector<std::string>& expected,
                   const std::vector<std::string>& got, CaseReport& report);

/// A switch of a configuration; `otherwise` where it is not set.
bool setting(const json::Value& settings, std::string_view key, bool otherwise);

/// The iterations of a recording, {"same_as": j} replaced by what it stands for.
std::vector<json::Value> unfolded_iterations(const json::Value& file);

}  // namespace fsdplan
