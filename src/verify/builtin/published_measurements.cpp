#include <filesystem>

#include "base/file.hpp"
#include "base/json.hpp"
#include "verify/published/compare.hpp"
#include "verify/published/row.hpp"

// Tables of real training runs that others have published (docs/formats.md).
namespace fsdplan {
namespace {

/// Whether the file names this repository in one of its "source…" members.
bool is_from(const json::Value& file, std::string_view repository) {
    for (const json::Value member : file.members()) {
        if (!member.key().starts_with("source") || !member.is_object()) {
            continue;
        }
        if (const auto found = member.find("repo");
            found && found->is_string() && found->string() == repository) {
            return true;
        }
    }
    return false;
}

const PublishedSource* source_of(const json::Value& file) {
    for (const PublishedSource* source : builtin::published_sources()) {
        if (file.find(source->key) && (source->repository.empty() || is_from(file, source->repository))) {
            return source;
        }
    }
    return nullptr;
}

void replay(const std::string& path, Verification& out) {
    const json::Document document(read_text(path), path);
    const PublishedSource* source = source_of(document.root());
    if (source == nullptr) {
        skip_case(std::filesystem::path(path).stem().string(), "no table of this source is known here", out);
        return;
    }
    for (const PublishedRow& row : source->read(document.root())) {
        compare_with_published(row, out);
    }
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo published_measurements;
constinit const RecordingInfo published_measurements{
    .name = "published measurements",
    .help = "published measurements (JSON with source and rows)",
    .recognises =
        [](const std::string& path, std::string_view head) {
            return path.ends_with(".json") && head.find("\"source") != head.npos &&
                   (head.find("\"rows") != head.npos || head.find("\"facts\"") != head.npos);
        },
    .replay = replay,
};

}  // namespace builtin::recording
}  // namespace fsdplan
