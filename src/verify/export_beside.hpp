#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace fsdplan {

/// The export `name`.json or `name`.json.gz for a recording: in "exports" inside of the recording's folder or
/// beside it.
std::optional<std::filesystem::path> export_beside(const std::string& recording, const std::string& name);

}  // namespace fsdplan
