#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/calibrate.hpp"
#include "fsdplan/checkpoint_plan.hpp"
#include "fsdplan/compatibility.hpp"
#include "fsdplan/decode.hpp"
#include "fsdplan/execute.hpp"
#include "fsdplan/explain.hpp"
#include "fsdplan/planner.hpp"
#include "fsdplan/search.hpp"
#include "fsdplan/simulate.hpp"

// Results on their way out. A result is a JSON document, "format": "fsdplan.result";
// reports/result.schema.json describes it, and every other form of a report holds or is made from it.
namespace fsdplan {

/// The result as JSON; `version` is the program's.
std::string json_report(const SweepQuestion& question, const SweepResult& result, std::string_view version);

/// The result for a terminal of 100 columns: the verdict, what it rests on, then the table of plans.
std::string text_report(const SweepQuestion& question, const SweepResult& result);

/// One simulated step for a terminal: the verdict, the three sizes of memory, what is alive at the peak,
/// memory over time, collectives with what compute waits for.
std::string text_report(const SweepQuestion& question, const StepResult& result);
/// The same as JSON, `"command": "simulate"`, with every collective of the step.
std::string json_report(const SweepQuestion& question, const StepResult& result, std::string_view version);

/// A search for a terminal: the verdict, the plan with what it costs and why, the proof, what else there is,
/// the code.
std::string text_report(const SearchQuestion& question, const SearchResult& result);
/// The same as JSON, `"command": "plan"`; what tools/python applies is in recommended/wrap_plan.
std::string json_report(const SearchQuestion& question, const SearchResult& result, std::string_view version);

/// What collectives belong to, for a terminal: each with its unit and pass, then whether the ranks are in
/// step.
std::string text_report(const SweepQuestion& question, const DecodeResult& result);
/// The same as JSON, `"command": "decode"`.
std::string json_report(const SweepQuestion& question, const DecodeResult& result, std::string_view version);

/// Why a plan does not fit or waits, for a terminal: what is alive at the peak, and single changes with what
/// they do.
std::string text_report(const SweepQuestion& question, const Explanation& result);
/// The same as JSON, `"command": "explain"`.
std::string json_report(const SweepQuestion& question, const Explanation& result, std::string_view version);

/// A plan's step as it was predicted and as devices executed it.
struct MeasuredStep {
    StepResult predicted;
    Execution measured;
    std::vector<PredictionError> errors;
    std::string backend;
    std::string library;
    double scale = 1.0;  ///< of arithmetic and memory traffic, in both
    double tolerance = 0.25;
    int repeats = 0;
};
/// Prediction beside measurement for a terminal, with the verdict.
std::string text_report(const SweepQuestion& question, const MeasuredStep& result);
/// The same as JSON, `"command": "run"`.
std::string json_report(const SweepQuestion& question, const MeasuredStep& result, std::string_view version);

/// Measured curves for a terminal: sizes, lines and what the fit is worth.
std::string text_report(const Calibration& calibration);
/// A calibration file, "format": "fsdplan.calibration": times, points and fits.
std::string json_report(const Calibration& calibration, std::string_view version);

/// A checkpoint that is loaded into another configuration.
struct CheckpointLoad {
    std::string save;  ///< names of the routes
    std::string load;
    Compatibility found;
    std::string remedy;
};
struct CheckpointResult {
    PlanResult plan;
    CheckpointPlan checkpoint;
    std::optional<CheckpointLoad> load;
    std::optional<ShapeMismatch> mismatch;
    std::vector<Assumption> assumptions;
};
/// What saving costs, for a terminal: the verdict, every format, the code of the one to choose, and what
/// loading into another configuration does.
std::string text_report(const SweepQuestion& question, const CheckpointResult& result);
/// The same as JSON, `"command": "checkpoint"`.
std::string json_report(const SweepQuestion& question, const CheckpointResult& result,
                        std::string_view version);

/// Throws Error(input) at `file` unless `json` is a result that this version can show: format, version, and
/// every value that a report reads, with indices in range. Further keys are let through.
void check_result(std::string_view json, std::string_view file);

/// One HTML page that needs nothing else: template, style and script of the binary around `result_json`,
/// which is a result as check_result() accepts it and is in the page whole (element report-data, `<` as
/// \u003c).
std::string html_report(std::string_view result_json);

/// What a trace or snapshot says about where it comes from.
struct TraceOptions {
    std::string_view version;  ///< of the program
    std::int64_t rank = 0;
    std::string_view plan{};                 ///< its label
    std::span<const std::string> modules{};  ///< paths by row of the tree; empty: units are named instead
};

/// A run as trace events (`.trace.json`), which Perfetto, chrome://tracing and most profilers' tools open: a
/// track for the host, for what compute waits for and for each stream, counters of memory by category. Times
/// are exact to the nanosecond; slices of one track never overlap.
std::string trace_report(const Schedule& schedule, const Run& run, const TraceOptions& options);

/// What the allocator did as PyTorch's memory snapshot (`.snapshot.pickle`), for pytorch.org/memory_viz and
/// `python -m torch.cuda._memory_viz`. Categories colour the allocations; the stack of each is its module and
/// what it is for.
std::string snapshot_report(const Schedule& schedule, const AllocatorLog& log, const TraceOptions& options);

}  // namespace fsdplan
