#include <filesystem>

#include "fsdplan/schedule.hpp"
#include "verify/case_report.hpp"
#include "verify/format.hpp"
#include "verify/memory_tracker_case.hpp"
#include "verify/memory_tracker_compare.hpp"
#include "verify/nearby_file.hpp"

// What PyTorch's own memory tracker says of steps of FSDP2 (docs/formats.md).
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.memtracker-golden";

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    const std::string name = std::filesystem::path(path).stem().string();
    const std::string exported = export_name(recording.at("case"));
    const auto file = export_beside(path, exported);
    if (!file) {
        skip_case(name, "there is no export " + exported + " of its model", out);
        return;
    }
    const MemoryTrackerCase recorded = memory_tracker_case(recording, file->string());
    const Schedule schedule = lower({.tree = recorded.tree,
                                     .plan = recorded.run.plan,
                                     .job = recorded.run.job,
                                     .operators = &recorded.operators,
                                     .input_bytes = recorded.input_bytes,
                                     .rank = 0,
                                     .iterations = recorded.iterations});
    compare_tracked(name, recording.at("iterations"), recorded.is_fake,
                    tracked_iterations(schedule, recorded.hooks()), out);
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo memory_tracker_recordings;
constinit const RecordingInfo memory_tracker_recordings{
    .name = "memory tracker",
    .help =
        "peaks of FSDP2 by category as PyTorch's tracker counts them (JSON with the format "
        "fsdplan.memtracker-golden), against exports of the same models",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
