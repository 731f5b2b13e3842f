#include <algorithm>
#include <filesystem>
#include <iterator>

#include "fsdplan/schedule.hpp"
#include "verify/case_report.hpp"
#include "verify/error_cases.hpp"
#include "verify/format.hpp"

// Configurations that FSDP1 and FSDP2 refuse, or accept although they should not (docs/formats.md).
namespace fsdplan {
namespace {

constexpr std::string_view format = "fsdplan.error-golden";

/// The error with which the program would end: the first of construction, else the first of the forward pass.
std::optional<Diagnostic> raised(const ErrorCase& about) {
    const ModuleTree tree = flatten(about.model);
    const WrapOptions options = wrap_options(about.job);
    WrapPlan plan = runtime(about.job.runtime).wraps_by_policy ? wrap_fsdp1(tree, about.spec, options)
                                                               : wrap_fsdp2(tree, about.spec, options);
    for (Unit& unit : plan.units) {
        unit.arguments.insert(unit.arguments.end(), about.arguments.begin(), about.arguments.end());
    }
    std::ranges::move(refusals(tree, plan, about.job), std::back_inserter(plan.diagnostics));
    for (const Severity severity : {Severity::error, Severity::forward_error}) {
        const auto first = std::ranges::find(plan.diagnostics, severity, &Diagnostic::severity);
        if (first != plan.diagnostics.end()) {
            return *first;
        }
    }
    return std::nullopt;
}

/// What was raised, as far as `text` goes: ours ends before what torch lists in any order.
std::string shown(std::string_view type, std::string_view message, const std::string& text) {
    const bool same_beginning = !text.empty() && message.starts_with(text);
    return std::string(type) + ": " + (same_beginning ? text : std::string(message));
}

void replay_case(const json::Value& row, std::int64_t world, const std::string& file, Verification& out) {
    const std::string name(row.at("name").string());
    const std::string case_name = file + " " + name;
    const KnownErrorCase* known = find_error_case(name);
    if (known == nullptr || known->make == nullptr) {
        skip_case(case_name, known == nullptr ? "the recording names no model" : std::string(known->skipped),
                  out);
        return;
    }
    const std::optional<Diagnostic> got = raised(known->make(world));
    const std::string own_text = got ? got->error_text : std::string();
    std::string expected = "no error";
    if (const json::Value error = row.at("error"); !error.is_null()) {
        expected = shown(error.string(), row.at("message").string(), own_text);
    }
    CaseReport report(case_name);
    report.compare(std::string(row.at("what").string()), expected,
                   got ? got->error_type + ": " + own_text : "no error");
    report.close(out);
}

void replay(const json::Value& recording, const std::string& path, Verification& out) {
    const std::int64_t world = recording.at("world").integer(1, 1 << 20U);
    const std::string file = std::filesystem::path(path).stem().string();
    for (const json::Value row : recording.at("cases").elements()) {
        replay_case(row, world, file, out);
    }
}

}  // namespace

namespace builtin::recording {

extern const RecordingInfo error_recordings;
constinit const RecordingInfo error_recordings{
    .name = "errors",
    .help = "what FSDP1 and FSDP2 refuse (JSON with the format fsdplan.error-golden)",
    .recognises = of_format<format>,
    .replay = replay_json<replay>,
};

}  // namespace builtin::recording
}  // namespace fsdplan
