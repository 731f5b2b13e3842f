#include "verify/nearby_tree.hpp"

#include <filesystem>

namespace fsdplan {

std::string find_nearby(const std::string& recording, std::string_view relative) {
    namespace fs = std::filesystem;
    const fs::path wanted(relative);
    if (wanted.is_absolute() || relative.find("..") != std::string_view::npos) {
        return {};
    }
    std::error_code error;
    fs::path folder = fs::absolute(recording, error).parent_path();
    for (;; folder = folder.parent_path()) {
        // "golden/wrap/x.json" may lie in a copy of golden/ under another name.
        fs::path part = wanted;
        while (!part.empty()) {
            for (const char* ending : {"", ".gz"}) {
                const fs::path file = folder / (part.string() + ending);
                if (fs::is_regular_file(file, error)) {
                    return file.string();
                }
            }
            const std::string text = part.generic_string();
            const std::size_t slash = text.find('/');
            part = slash == std::string::npos ? fs::path() : fs::path(text.substr(slash + 1));
        }
        if (folder == folder.root_path() || folder.empty()) {
            return {};
        }
    }
}

}  // namespace fsdplan
