#include "verify/export_beside.hpp"

#include <system_error>

namespace fsdplan {

std::optional<std::filesystem::path> export_beside(const std::string& recording, const std::string& name) {
    if (std::filesystem::path(name).filename() != name) {
        return std::nullopt;  // a name that a recording gives may not lead elsewhere
    }
    const std::filesystem::path folder = std::filesystem::path(recording).parent_path();
    for (const std::filesystem::path& exports : {folder / "exports", folder / ".." / "exports"}) {
        for (const char* ending : {".json", ".json.gz"}) {
            const std::filesystem::path file = exports / (name + ending);
            std::error_code error;
            if (std::filesystem::is_regular_file(file, error)) {
                return file;
            }
        }
    }
    return std::nullopt;
}

}  // namespace fsdplan
