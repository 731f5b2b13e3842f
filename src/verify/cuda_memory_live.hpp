#pragma once

#include <array>
#include <cstdint>

#include "base/json.hpp"
#include "fsdplan/schedule.hpp"
#include "verify/case_report.hpp"

namespace fsdplan {

/// Reports where what was alive at the peak differs most, by what it was: `rows` as recorded in
/// live_at_peak, `got` bytes by category.
void compare_live(const std::string& where, const json::Value& rows,
                  const std::array<std::int64_t, category_count>& got, CaseReport& report);

}  // namespace fsdplan
