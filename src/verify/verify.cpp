#include "fsdplan/verify.hpp"

#include <algorithm>
#include <filesystem>

#include "base/file.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t head_size = 4096;

// What cannot be read may still be a recording by its name; replaying it then says what is wrong.
std::string head_of(const std::filesystem::path& file) {
    try {
        return read_head(file, head_size);
    } catch (const Error&) {
        return {};
    }
}

const RecordingInfo* layout_of(const std::filesystem::path& file) {
    const std::string path = file.string();
    const std::string head = head_of(file);
    for (const RecordingInfo* layout : builtin::recordings()) {
        if (layout->recognises(path, head)) {
            return layout;
        }
    }
    return nullptr;
}

struct Recording {
    std::filesystem::path path;
    const RecordingInfo* layout = nullptr;
};

std::vector<Recording> recordings_in(const std::string& path) {
    std::error_code error;
    std::vector<Recording> found;
    const auto look_at = [&](const std::filesystem::path& file) {
        if (const RecordingInfo* layout = layout_of(file)) {
            found.push_back({.path = file, .layout = layout});
        }
    };
    const auto look_in = [&](const std::filesystem::path& folder) {
        for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
            look_at(entry.path());
        }
    };
    if (std::filesystem::is_directory(path, error)) {
        look_in(path);
        if (found.empty()) {
            for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
                if (entry.is_directory()) {
                    look_in(entry.path());
                }
            }
        }
        std::ranges::sort(found, {}, &Recording::path);
    } else if (std::filesystem::exists(path, error)) {
        look_at(path);
    }
    if (error) {
        throw Error(ErrorKind::input, path, "cannot be read: " + error.message());
    }
    if (found.empty()) {
        std::string known;
        for (const RecordingInfo* layout : builtin::recordings()) {
            known += (known.empty() ? "" : "; ") + std::string(layout->help);
        }
        throw Error(ErrorKind::input, path, "no recording is here; expected a folder with one of: " + known);
    }
    return found;
}

}  // namespace

Verification verify(std::span<const std::string> paths) {
    Verification out;
    for (const std::string& path : paths) {
        for (const Recording& recording : recordings_in(path)) {
            recording.layout->replay(recording.path.string(), out);
        }
    }
    return out;
}

}  // namespace fsdplan
