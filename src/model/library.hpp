#pragma once

#include <string>
#include <string_view>

namespace fsdplan {

struct LibraryEntry {
    std::string_view folder;
    std::string_view config;  ///< text of its config.json
};

/// Finds a model of the library by folder, "org/name" or alias, in any letter case.
/// Throws Error(input) with the nearest names.
LibraryEntry library_entry(std::string_view name);

}  // namespace fsdplan
