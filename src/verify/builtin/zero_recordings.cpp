#include <filesystem>

#include "schedule/zero12.hpp"
#include "schedule/zero3.hpp"
#include "verify/case_report.hpp"
#include "verify/format.hpp"
#include "verify/traffic.hpp"
#include "verify/zero_case.hpp"
#include "verify/zero_events.hpp"
#include "verify/zero_layouts.hpp"
#include "verify/zero_modules.hpp"

// Everything that DeepSpeed sends in stages 0 to 3, recorded (docs/formats.md, "Recordings of ZeRO").
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.zero-golden";

/// True when initialize() is refused, in which case nothing else is recorded.
bool compare_refusal(const json::Value& recording, const ZeroCase& run, CaseReport& report) {
    std::string got = "none";
    if (run.options.stage > 0 && run.options.clips_gradients &&
        !setting(recording.at("case").at("zero"), "compute_grad_norm", true)) {
        got = "ValueError: zero_optimization.compute_grad_norm=false requires gradient_clipping=0";
    }
    const auto error = recording.find("error");
    report.compare(
        "error",
        error ? std::string(error->at("type").string()) + ": " + std::string(error->at("message").string())
              : "none",
        got);
    return error || got != "none";
}

std::int64_t iteration_count(const json::Value& recording) {
    return recording.at("case").at("iters").integer(1, 1000);
}

void compare_stage12(const json::Value& recording, const ZeroCase& run, CaseReport& report) {
    const std::vector training(static_cast<std::size_t>(iteration_count(recording)),
                               zero::zero12_iteration(run.parameters, run.options, run.ready));
    compare_zero_iterations(recording, run, training, {}, report);
    compare_zero_groups(recording, run, report);
}

void compare_stage3(const json::Value& recording, const ZeroCase& run, CaseReport& report) {
    compare_zero_partitions(recording, run, report);
    const ZeroModules modules = zero_modules(recording, run);
    const std::vector<std::vector<zero::Event>> training = zero::zero3_training(
        run.parameters, modules.modules, run.options, modules.micro_batch, iteration_count(recording));
    compare_zero_iterations(recording, run, training, modules.paths, report);
}

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    const std::string name = std::filesystem::path(path).filename().string();
    const ZeroCase run = zero_case(recording);
    if (!run.out_of_reach.empty()) {
        skip_case(name, run.out_of_reach, out);
        return;
    }
    CaseReport report(name);
    if (!compare_refusal(recording, run, report)) {
        compare_zero_construction(recording, run, report);
        if (run.options.stage == 3) {
            compare_stage3(recording, run, report);
        } else {
            compare_stage12(recording, run, report);
        }
    }
    report.close(out);
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo zero_recordings;
constinit const RecordingInfo zero_recordings{
    .name = "zero",
    .help = "collectives and partitions of DeepSpeed ZeRO (JSON with the format fsdplan.zero-golden)",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
