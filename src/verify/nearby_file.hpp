#pragma once

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

// Files that a recording names, which lie beside it or near by. A name never leads out of the folders that
// are looked into.
namespace fsdplan {

/// `name`.json or `name`.json.gz in the first of the folders that has one.
std::optional<std::filesystem::path> json_file_in(std::initializer_list<std::filesystem::path> folders,
                                                  const std::string& name);

/// The export `name` for a recording: in "exports" inside of the recording's folder or beside it.
std::optional<std::filesystem::path> export_beside(const std::string& recording, const std::string& name);

/// A file under a relative path: looked up under that path and under its last parts, in the recording's
/// folder, then in the folders above. Also with ".gz".
std::optional<std::filesystem::path> find_nearby(const std::string& recording, std::string_view relative);

}  // namespace fsdplan
