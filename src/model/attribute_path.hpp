#pragma once

#include <algorithm>
#include <string_view>

namespace fsdplan {

/// Whether a dotted name can be the path of a module or tensor: no part is empty, and there are not more of
/// them than any model has (Python itself gives up at a thousand).
inline bool is_attribute_path(std::string_view name) {
    constexpr std::ptrdiff_t deepest = 64;
    const bool empty_part = name.empty() || name.front() == '.' || name.back() == '.' ||
                            name.find("..") != std::string_view::npos;
    return !empty_part && std::ranges::count(name, '.') < deepest;
}

}  // namespace fsdplan
