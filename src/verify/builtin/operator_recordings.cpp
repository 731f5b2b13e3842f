#include <algorithm>
#include <array>
#include <filesystem>

#include "verify/case_report.hpp"
#include "verify/format.hpp"

// Recordings of what single operators save and need: known, and not replayed.
namespace fsdplan {
namespace {

constexpr std::array<std::string_view, 2> formats{"fsdplan.activation-golden", "fsdplan.memtracker-golden"};

void skip(const std::string& path, Verification& out) {
    skip_case(std::filesystem::path(path).stem().string(), "activations need the operator graph", out);
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo operator_recordings;
constinit const RecordingInfo operator_recordings{
    .name = "operators",
    .help =
        "activations and peaks by category (JSON with the format fsdplan.activation-golden or "
        "fsdplan.memtracker-golden), which are skipped",
    .recognises =
        [](const std::string& /*path*/, std::string_view head) {
            return std::ranges::any_of(formats,
                                       [&](std::string_view format) { return has_format(head, format); });
        },
    .replay = skip,
};

}  // namespace builtin::recording
}  // namespace fsdplan
