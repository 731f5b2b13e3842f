#pragma once

#include <string>
#include <string_view>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/verify.hpp"

// What a recording in JSON says of its own layout, and the part of an entry in builtin/ that follows from it.
namespace fsdplan {

/// Whether the head of a file says `"format": "<format>"`.
bool has_format(std::string_view head, std::string_view format);

/// Fails unless the recording is of version 1. `key`: what it calls its version.
void require_version(const json::Value& recording, std::string_view key = "version");

/// RecordingInfo::recognises of a layout that is told by its format alone.
template <const std::string_view& format>
bool of_format(const std::string& /*path*/, std::string_view head) {
    return has_format(head, format);
}

/// RecordingInfo::replay of a layout whose files are one JSON object of version 1 each.
template <void (*replay)(const json::Value& recording, const std::string& path, Verification& out)>
void replay_json(const std::string& path, Verification& out) {
    const json::Document document(read_text(path), path);
    require_version(document.root());
    replay(document.root(), path, out);
}

}  // namespace fsdplan
