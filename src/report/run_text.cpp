#include <fmt/core.h>

#include <algorithm>

#include "base/quantity.hpp"
#include "fsdplan/report.hpp"
#include "report/step_facts.hpp"
#include "report/text_parts.hpp"

namespace fsdplan {
namespace {

std::string shown(const PredictionError& error, std::int64_t value) {
    const bool counted = error.key.ends_with("_bytes") || error.key.ends_with("_ranks");
    return counted ? show_integer(value) : show_duration(value);
}

std::string off_by(const PredictionError& error) {
    if (error.predicted == error.measured) {
        return "equal";
    }
    const std::optional<double> relative = error.relative();
    return relative ? fmt::format("{:+.1f} %", 100.0 * *relative) : "";
}

std::string verdict(const MeasuredStep& result) {
    const auto short_of_memory = std::ranges::count(result.measured.ranks, true, &RankResult::out_of_memory);
    if (short_of_memory > 0) {
        return fmt::format("Memory ran out on {} of {} ranks.", short_of_memory,
                           result.measured.ranks.size());
    }
    if (!all_within(result.errors)) {
        return fmt::format("Outside the tolerance of {:.0f} %.", 100.0 * result.tolerance);
    }
    const bool times = std::ranges::any_of(
        result.errors, [](const PredictionError& d) { return d.judged && d.key == "step_ns"; });
    return times ? fmt::format("Within the tolerance of {:.0f} %.", 100.0 * result.tolerance)
                 : std::string(
                       "Bytes are as predicted. Times are not judged: the prediction is about other "
                       "devices than these, which `fsdplan calibrate` measures.");
}

}  // namespace

std::string text_report(const SweepQuestion& question, const MeasuredStep& result) {
    std::string text =
        wrapped(verdict(result), 0) + "\n\n" + question_lines(question, question.jobs.front()) + "\n";
    text += row("Plan", result.predicted.plan.label);
    text += row("Executed", fmt::format("{} times by {} ranks, {}, scale {}", result.repeats,
                                        result.measured.ranks.size(), result.library, result.scale));
    if (const auto& out = result.measured.run.memory->out_of_memory) {
        text += row("Memory", fmt::format("{} of {} more did not fit beside {} reserved",
                                          shown_op(result.predicted.schedule, out->op),
                                          show_bytes(out->requested_bytes), show_bytes(out->reserved_bytes)));
    }
    text += fmt::format("\n{:<34}{:>20}{:>20}{:>12}\n", "", "predicted", "measured", "off by");
    for (const PredictionError& error : result.errors) {
        text += fmt::format("{:<34}{:>20}{:>20}{:>12}{}\n", error.key, shown(error, error.predicted),
                            shown(error, error.measured), off_by(error),
                            error.judged && !error.within ? "  !" : "");
    }
    return text;
}

}  // namespace fsdplan
