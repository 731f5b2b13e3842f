#include <filesystem>

#include "verify/case_report.hpp"
#include "verify/format.hpp"

// Peaks by category from FSDPMemTracker: known, and not replayed.
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.memtracker-golden";

void skip(const std::string& path, Verification& out) {
    skip_case(std::filesystem::path(path).stem().string(), "peaks by category are not compared yet", out);
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo memory_tracker_recordings;
constinit const RecordingInfo memory_tracker_recordings{
    .name = "memory tracker",
    .help = "peaks by category (JSON with the format fsdplan.memtracker-golden), which are skipped",
    .recognises = of_format<format>,
    .replay = skip,
};

}  // namespace builtin::recording
}  // namespace fsdplan
