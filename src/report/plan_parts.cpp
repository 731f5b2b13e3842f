#include "report/plan_parts.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/quantity.hpp"
#include "fsdplan/report.hpp"
#include "report/facts.hpp"
#include "report/text_parts.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_diagnostics = 4;
constexpr std::size_t most_classes = 6;

std::string interval(const Estimate& bytes) {
    return bytes.low == bytes.high ? std::string("exact")
                                   : fmt::format("{} to {}", show_bytes(bytes.low), show_bytes(bytes.high));
}

}  // namespace

std::string units_line(const PlanResult& plan) {
    std::string classes;
    for (std::size_t i = 0; i < std::min(plan.units_by_class.size(), most_classes); ++i) {
        classes += fmt::format("{}{} {}", i == 0 ? "" : ", ", plan.units_by_class[i].second,
                               plan.units_by_class[i].first);
    }
    if (plan.units_by_class.size() > most_classes) {
        classes += fmt::format(" and {} classes more", plan.units_by_class.size() - most_classes);
    }
    const std::int64_t empty = plan.units - plan.units_with_parameters;
    std::string text = fmt::format("{}: {}", plan.units, classes);
    text += empty > 0 ? fmt::format(", {} without parameters", empty) : std::string();
    const std::string largest =
        plan.largest_unit < 0 ? std::string("none")
                              : shown_path(plan.wrap.units[static_cast<std::size_t>(plan.largest_unit)].path);
    return row("Units", text) +
           row("", fmt::format("largest {} with {} elements, root {}", largest,
                               show_numel(plan.largest_unit_numel), show_numel(plan.root_numel)));
}

std::string problems(const PlanResult& plan) {
    if (plan.wrap.diagnostics.empty()) {
        return row("Problems", "none before the job starts");
    }
    std::string out;
    std::size_t shown = 0;
    for (const Diagnostic& d : plan.wrap.diagnostics) {
        if (shown == most_diagnostics) {
            out +=
                row("", fmt::format("and {} more (--json lists them)", plan.wrap.diagnostics.size() - shown));
            break;
        }
        out += row(shown == 0 ? "Problems" : "",
                   fmt::format("{} ({}): {}", name(d.rule), name(d.severity), d.message));
        ++shown;
    }
    return out;
}

std::string memory_table(const PlanResult& plan) {
    std::string moment(name(plan.peak_phase));
    if (!plan.peak_unit.empty()) {
        moment += " of " + plan.peak_unit;
    }
    std::string out = row("Memory", "of one GPU at the peak, " + moment + ":");
    std::string nothing;
    for (const MemoryTerm& term : plan.memory) {
        if (term.bytes.high == 0 && term.largest_bytes == 0) {
            nothing += (nothing.empty() ? "" : ", ") + shown_term(term.name);
            continue;
        }
        std::string note = term.note.substr(0, term.note.find(';'));
        if (term.largest_bytes > term.bytes.value) {
            note = fmt::format("up to {} at another moment", show_bytes(term.largest_bytes));
        }
        out += fmt::format("  {:<24}{:>10}  {:<24}{}\n", shown_term(term.name), show_bytes(term.bytes.value),
                           term.exact ? "exact" : interval(term.bytes), fitted(note, 38));
    }
    out += fmt::format("  {:<24}{:>10}  {:<24}{}\n", "process", show_bytes(plan.process_bytes.value),
                       interval(plan.process_bytes), "what the driver shows for it");
    if (!nothing.empty()) {
        out += "  " + wrapped("nothing: " + nothing, 2) + "\n";
    }
    return out;
}

std::string traffic(const PlanResult& plan) {
    std::string text = fmt::format("{} sent by each GPU in a step:", show_bytes(plan.sent_bytes));
    std::vector<std::pair<CollectiveKind, std::int64_t>> counts;
    for (const Collective& call : plan.collectives) {
        const auto found =
            std::ranges::find(counts, call.kind, &std::pair<CollectiveKind, std::int64_t>::first);
        if (found == counts.end()) {
            counts.push_back({call.kind, call.count});
        } else {
            found->second += call.count;
        }
    }
    for (std::size_t i = 0; i < counts.size(); ++i) {
        text += fmt::format("{} {} {}", i == 0 ? "" : ",", counts[i].second, name(counts[i].first));
    }
    text += counts.empty() ? " no collectives" : "";
    std::string others;
    for (const StrategyTraffic& strategy : plan.strategies) {
        others += fmt::format("{}{} {}", others.empty() ? "" : ", ", strategy.strategy,
                              show_bytes(strategy.sent_bytes));
    }
    return row("Traffic", text) + row("", "the same units: " + others) +
           row("Step", fmt::format("{} ({} to {}), {} of it waiting for collectives",
                                   show_duration(plan.step_ns.value), show_duration(plan.step_ns.low),
                                   show_duration(plan.step_ns.high), show_duration(plan.exposed_ns.value)));
}

std::string next_lines(const Verdict& verdict) {
    std::string out;
    for (const Change& change : verdict.next) {
        out += row(out.empty() ? "Next" : "", change.change + ": " + change.effect);
    }
    return out;
}

}  // namespace fsdplan
