#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/quantity.hpp"
#include "fsdplan/report.hpp"
#include "report/checkpoint_parts.hpp"
#include "report/plan_parts.hpp"
#include "report/text_parts.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t shown_frontier = 6;

std::string settings_text(const std::vector<std::pair<std::string, std::string>>& settings) {
    std::string text;
    for (const auto& [option, value] : settings) {
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", option, value);
    }
    return text;
}

/// "7.1 % less than" or "0.3 % more than"
std::string compared(double value, double with) {
    const double percent = 100.0 * (value - with) / with;
    return fmt::format("{:.1f} % {}", std::abs(percent), percent <= 0.0 ? "less" : "more");
}

double ns_per_token(const SweepQuestion& question, const PlanResult& plan) {
    const TrainingJob& job = question.jobs[plan.job];
    return static_cast<double>(plan.step_ns.value) / static_cast<double>(job.tokens() * job.accumulate);
}

std::string plan_lines(const SweepQuestion& question, const SearchResult& result) {
    const PlanResult& plan = result.closest;
    std::string out = row(result.recommended ? "Plan" : "Closest", plan.label);
    const std::string settings = settings_text(plan.settings);
    out += settings.empty() ? "" : row("", "with " + settings);
    out += row(
        "Instead of",
        fmt::format("{}: a token takes {} time, {} at the peak instead of {}", result.current.label,
                    compared(ns_per_token(question, plan), ns_per_token(question, result.current)),
                    show_bytes(plan.process_bytes.value), show_bytes(result.current.process_bytes.value)));
    return out;
}

std::string wait_lines(const SearchResult& result) {
    std::string text;
    for (const auto& [cause, ns] : result.waits) {
        text += fmt::format("{}{} for {}", text.empty() ? "" : ", ", show_duration(ns), name(cause));
    }
    return row("Waits", text.empty() ? "none: the device is always at work" : text);
}

std::string other_lines(const SweepQuestion& question, const SearchResult& result) {
    std::string out;
    const auto line = [&](const std::string& head, std::int64_t step_ns, double per_token, std::int64_t bytes,
                          const std::string& text) {
        out += fmt::format("  {:<11}{:>9}{:>13}{:>10}  {}\n", head, show_duration(step_ns),
                           compared(per_token, ns_per_token(question, result.closest)), show_bytes(bytes),
                           fitted(text, text_width - 47));
    };
    const auto text_of = [](const std::string& label, const auto& settings) {
        return settings.empty() ? label : settings_text(settings) + ": " + label;
    };
    for (const PlanResult& plan : result.alternatives) {
        line(out.empty() ? "runners-up" : "", plan.step_ns.value, ns_per_token(question, plan),
             plan.allocated_bytes, text_of(plan.label, plan.settings));
    }
    line("now", result.current.step_ns.value, ns_per_token(question, result.current),
         result.current.allocated_bytes, result.current.label);
    const std::size_t points = std::min(shown_frontier, result.frontier.size());
    for (std::size_t i = 0; i < points; ++i) {
        const FrontierPoint& point =
            result.frontier[points == 1 ? 0 : i * (result.frontier.size() - 1) / (points - 1)];
        line(i == 0 ? "frontier" : "", point.step_ns, point.ns_per_token, point.allocated_bytes,
             text_of(point.label, point.settings));
    }
    return fmt::format("\n  {:<11}{:>9}{:>13}{:>10}  {}\n", "", "step", "a token", "peak", "plan") + out;
}

std::string proof_lines(const SearchResult& result, Objective objective) {
    const SearchProof& proof = result.proof;
    const auto amount = [&](std::int64_t value) {
        return objective == Objective::time ? show_duration(value) : show_bytes(value);
    };
    std::string text;
    if (result.recommended) {
        text = fmt::format("no plan that allocates at most {} {} less than {}: this one is ",
                           show_bytes(proof.limit_bytes), objective == Objective::time ? "takes" : "needs",
                           amount(proof.bound));
        text += proof.complete && proof.gap == 0.0
                    ? std::string("optimal")
                    : fmt::format("within {:.1f} % of the best", 100.0 * proof.gap);
    } else {
        text = fmt::format("every plan allocates at least {} at its peak, and {} are left for that",
                           show_bytes(proof.floor_bytes), show_bytes(proof.limit_bytes));
    }
    text +=
        fmt::format("; {} of about 10^{:.0f} plans simulated, {} of {} settings ruled out by their bounds",
                    proof.simulated, proof.log10_plans, proof.settings_pruned, proof.settings);
    text += proof.stopped ? "; stopped before the end" : "";
    return row("Proof", text) + row("", "among " + proof.space);
}

std::string code_lines(const SweepQuestion& question, const PlanResult& plan) {
    const bool by_policy = runtime(question.jobs[plan.job].runtime).wraps_by_policy;
    const std::string& code = by_policy ? plan.code.fsdp1 : plan.code.fsdp2;
    return code.empty() ? row("Code", "-o plan.json, then fsdplan.load(\"plan.json\").apply(model, mesh)")
                        : "\n" + code;
}

std::string saving_lines(const SearchResult& result) {
    if (!result.checkpoint) {
        return "\nSaving a checkpoint: DeepSpeed's own format, which is not described\n";
    }
    return "\n" + wrapped("Saving a checkpoint: " + result.checkpoint->verdict, 0) + "\n" +
           checkpoint_table(*result.checkpoint);
}

}  // namespace

std::string text_report(const SearchQuestion& asked, const SearchResult& result) {
    const SweepQuestion question = with_jobs(asked.question, result.jobs);
    const PlanResult& plan = result.closest;
    std::string out = wrapped(result.verdict.text, 0) + "\n\n";
    out += question_lines(question, question.jobs[plan.job]) + "\n";
    out += plan_lines(question, result);
    out += units_line(plan) + problems(plan) + memory_table(plan) + traffic(plan);
    out += wait_lines(result);
    out += proof_lines(result, asked.objective) + next_lines(result.verdict);
    out += other_lines(question, result) + saving_lines(result);
    return result.recommended ? out + code_lines(question, plan) : out;
}

}  // namespace fsdplan
