#include <filesystem>

#include "base/file.hpp"
#include "base/json.hpp"
#include "verify/published/compare.hpp"
#include "verify/published/source.hpp"

// Tables of real training runs that others have published (docs/formats.md).
namespace fsdplan {
namespace {

void replay(const std::string& path, Verification& out) {
    const json::Document document(read_text(path), path);
    const PublishedSource* source = published::source_of(document.root());
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
