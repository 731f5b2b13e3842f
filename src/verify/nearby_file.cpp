#include "verify/nearby_file.hpp"

#include <system_error>

namespace fsdplan {
namespace {

namespace fs = std::filesystem;

/// The path with one of the endings, if there is such a file.
std::optional<fs::path> with_ending(const fs::path& path, std::initializer_list<const char*> endings) {
    for (const char* ending : endings) {
        std::error_code error;
        const fs::path file = path.string() + ending;
        if (fs::is_regular_file(file, error)) {
            return file;
        }
    }
    return std::nullopt;
}

/// "a/b/c" without its first part.
std::string_view behind_slash(std::string_view path) {
    const std::size_t slash = path.find('/');
    return slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
}

}  // namespace

std::optional<fs::path> json_file_in(std::initializer_list<fs::path> folders, const std::string& name) {
    if (name.empty() || fs::path(name).filename() != name) {
        return std::nullopt;
    }
    for (const fs::path& folder : folders) {
        if (auto file = with_ending(folder / name, {".json", ".json.gz"})) {
            return file;
        }
    }
    return std::nullopt;
}

std::optional<fs::path> export_beside(const std::string& recording, const std::string& name) {
    const fs::path folder = fs::path(recording).parent_path();
    return json_file_in({folder / "exports", folder / ".." / "exports"}, name);
}

std::optional<fs::path> find_nearby(const std::string& recording, std::string_view relative) {
    if (fs::path(relative).is_absolute() || relative.find("..") != std::string_view::npos) {
        return std::nullopt;
    }
    std::error_code error;
    for (fs::path folder = fs::absolute(recording, error).parent_path(); !folder.empty();
         folder = folder.parent_path()) {
        // "golden/wrap/x.json" may lie in a copy of golden/ under another name.
        for (std::string_view part = relative; !part.empty(); part = behind_slash(part)) {
            if (auto file = with_ending(folder / part, {"", ".gz"})) {
                return file;
            }
        }
        if (folder == folder.root_path()) {
            break;
        }
    }
    return std::nullopt;
}

}  // namespace fsdplan
