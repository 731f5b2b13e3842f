#include <fmt/core.h>

#include <cmath>

#include "base/quantity.hpp"
#include "fsdplan/report.hpp"
#include "report/plan_parts.hpp"
#include "report/step_parts.hpp"
#include "report/text_parts.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t change_columns = 38;

std::string fits_word(const ExplainedChange& change) {
    if (!change.refused.empty()) {
        return "refused";
    }
    return change.fits ? (*change.fits ? "yes" : "no") : "depends";
}

std::string change_lines(const Explanation& result) {
    std::string out = fmt::format("\n{:<8}{:<{}}{:>10}{:>10}{:>10}{:>9}\n", "fits", "one change",
                                  change_columns, "needs", "frees", "step", "speed");
    for (const ExplainedChange& change : result.changes) {
        const std::string freed =
            (change.freed_bytes < 0 ? "-" : "") + show_bytes(std::abs(change.freed_bytes));
        out += fmt::format("{:<8}{:<{}}{:>10}{:>10}{:>10}{:>+7.1f} %\n", fits_word(change),
                           fitted(change.change, change_columns - 1), change_columns,
                           show_bytes(change.process_bytes), freed, show_duration(change.step_ns.value),
                           100.0 * (change.speed - 1.0));
        const std::string& note = change.refused.empty() ? change.side_effect : change.refused;
        out += note.empty() ? "" : "        " + wrapped(note, 8) + "\n";
    }
    return out;
}

}  // namespace

std::string text_report(const SweepQuestion& question, const Explanation& result) {
    const StepResult& step = result.step;
    std::string text = wrapped(step_verdict(step, question.cluster), 0) + "\n\n";
    text += question_lines(question, question.jobs.front()) + "\n";
    text += row("Plan", step.plan.label) + units_line(step.plan) + problems(step.plan);
    text += time_lines(step) + memory_lines(step) + live_lines(step, question.tree);
    return text + change_lines(result);
}

}  // namespace fsdplan
