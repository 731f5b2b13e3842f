#include "report/operation_names.hpp"

namespace fsdplan {

std::string place_name(const Schedule& schedule, std::span<const std::string> modules, std::int32_t unit,
                       std::int32_t module) {
    std::string path;
    if (module >= 0 && static_cast<std::size_t>(module) < modules.size()) {
        path = modules[static_cast<std::size_t>(module)];
    } else if (unit >= 0) {
        path = schedule.units[static_cast<std::size_t>(unit)];
    } else {
        return "(no unit)";
    }
    return path.empty() ? "(root)" : path;
}

}  // namespace fsdplan
