#include <fmt/core.h>

#include <algorithm>

#include "base/quantity.hpp"
#include "fsdplan/report.hpp"
#include "report/facts.hpp"
#include "report/plan_parts.hpp"
#include "report/text_parts.hpp"

namespace fsdplan {
namespace {

std::string thresholds_text(const PlanResult& plan) {
    return plan.threshold_high
               ? fmt::format("{}..{}", show_integer(plan.threshold_low), show_integer(*plan.threshold_high))
               : fmt::format("{} and more", show_integer(plan.threshold_low));
}

std::string fits_text(const PlanResult& plan) {
    if (!plan.runs()) {
        return "refused";
    }
    return plan.fits ? (*plan.fits ? "yes" : "no") : "maybe";
}

/// What tells a plan from the others: its thresholds when they are swept, else the listed options' values.
std::string key_of(const SweepQuestion& question, const PlanResult& plan) {
    if (question.sweep_thresholds) {
        return thresholds_text(plan);
    }
    std::string values;
    for (const auto& [option, value] : plan.settings) {
        values += (values.empty() ? "" : ", ") + value;
    }
    return values;
}

std::string table(const SweepQuestion& question, const SweepResult& result) {
    std::string head = "min_num_params";
    if (!question.sweep_thresholds) {
        head.clear();
        for (const auto& [option, value] : result.plans.front().settings) {
            head += (head.empty() ? "" : ", ") + option;
        }
    }
    std::size_t columns = head.size();
    for (const PlanResult& plan : result.plans) {
        columns = std::max(columns, key_of(question, plan).size());
    }
    columns = std::min<std::size_t>(columns, 44);
    const std::size_t numbers = 9 + columns + 8 + 9 + 10 + 9 + 2;
    std::string out = fmt::format("\n{:<9}{:<{}}{:>8}{:>9}{:>10}{:>9}  {}\n", "fits", fitted(head, columns),
                                  columns, "units", "largest", "peak", "step", "plan");
    for (std::size_t i = 0; i < result.plans.size(); ++i) {
        const PlanResult& plan = result.plans[i];
        std::string label = plan.label;
        for (std::size_t s = question.sweep_thresholds ? plan.settings.size() : 0; s-- > 0;) {
            label.insert(0, plan.settings[s].second + ", ");
        }
        const bool recommended = result.recommended == i;
        out += fmt::format("{:<9}{:<{}}{:>8}{:>9}{:>10}{:>9}  {}\n",
                           (recommended ? "* " : "  ") + fits_text(plan),
                           fitted(key_of(question, plan), columns), columns, plan.units,
                           show_numel(plan.largest_unit_numel), show_bytes(plan.process_bytes.value),
                           show_duration(plan.step_ns.value), fitted(label, text_width - numbers));
    }
    return out;
}

std::string about_plan(const SweepQuestion& question, const SweepResult& result) {
    const PlanResult& plan = result.plans[result.shown];
    std::string text = plan.label;
    for (const auto& [option, value] : plan.settings) {
        text += fmt::format(", {} {}", option, value);
    }
    if (question.sweep_thresholds && result.plans.size() > 1) {
        text += ", min_num_params " + thresholds_text(plan);
    }
    return row(result.recommended ? "Plan" : "Closest", text);
}

}  // namespace

std::string text_report(const SweepQuestion& question, const SweepResult& result) {
    const PlanResult& plan = result.plans[result.shown];
    std::string out = wrapped(result.verdict.text, 0) + "\n\n";
    out += question_lines(question, question.jobs[plan.job]) + "\n";
    out += about_plan(question, result);
    out +=
        units_line(plan) + problems(plan) + memory_table(plan) + traffic(plan) + next_lines(result.verdict);
    return result.plans.size() > 1 ? out + table(question, result) : out;
}

}  // namespace fsdplan
