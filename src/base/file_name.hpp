#pragma once

#include <string_view>

namespace fsdplan {

/// Whether a name that a file gives for another one stays in its folder: no separator, no "..", not empty.
constexpr bool is_plain_file_name(std::string_view name) {
    return !name.empty() && name != "." && name != ".." &&
           name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

}  // namespace fsdplan
