#include "fsdplan/verify.hpp"

#include <algorithm>
#include <filesystem>

namespace fsdplan {
namespace {

const RecordingInfo* layout_of(const std::filesystem::path& file) {
    const std::string name = file.filename().string();
    for (const RecordingInfo* layout : builtin::recordings()) {
        if (layout->recognises(name)) {
            return layout;
        }
    }
    return nullptr;
}

std::vector<std::filesystem::path> recordings_in(const std::string& path) {
    std::error_code error;
    std::vector<std::filesystem::path> files;
    if (std::filesystem::is_directory(path, error)) {
        for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
            if (layout_of(entry.path()) != nullptr) {
                files.push_back(entry.path());
            }
        }
        std::ranges::sort(files);
    } else if (std::filesystem::exists(path, error) && layout_of(path) != nullptr) {
        files.emplace_back(path);
    }
    if (error) {
        throw Error(ErrorKind::input, path, "cannot be read: " + error.message());
    }
    if (files.empty()) {
        std::string known;
        for (const RecordingInfo* layout : builtin::recordings()) {
            known += (known.empty() ? "" : "; ") + std::string(layout->help);
        }
        throw Error(ErrorKind::input, path, "no recording is here; expected a folder with one of: " + known);
    }
    return files;
}

}  // namespace

Verification verify(std::span<const std::string> paths) {
    Verification out;
    for (const std::string& path : paths) {
        for (const std::filesystem::path& file : recordings_in(path)) {
            layout_of(file)->replay(file.string(), out);
        }
    }
    return out;
}

}  // namespace fsdplan
