#pragma once

#include <span>
#include <string>

#include "fsdplan/schedule.hpp"

namespace fsdplan {

/// Where something belongs, for people: its module's path, else its unit's; "(root)" for "", "(no unit)" for
/// neither.
std::string place_name(const Schedule& schedule, std::span<const std::string> modules, std::int32_t unit,
                       std::int32_t module);

}  // namespace fsdplan
