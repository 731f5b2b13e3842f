#include <algorithm>
#include <map>

#include "fsdplan/report.hpp"
#include "report/facts.hpp"
#include "report/json_parts.hpp"
#include "report/json_plan.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_modules = 20'000;

}  // namespace

std::string json_report(const SweepQuestion& question, const SweepResult& result, std::string_view version) {
    JsonWriter out = begin_result("sweep", version);
    write_question(out, question, question.jobs[result.plans[result.shown].job], result.assumptions);
    write_verdict(out, result.verdict);
    out.key("recommended");
    if (result.recommended) {
        out.value(static_cast<std::int64_t>(*result.recommended));
    } else {
        out.null();
    }
    const bool every_row_in_a_unit = std::ranges::all_of(
        result.plans, [&](const PlanResult& plan) { return covers_all_rows(question.tree, plan.wrap); });
    const bool with_rows = question.tree.size() <= most_modules && every_row_in_a_unit;
    out.key("plans").begin_array();
    for (const PlanResult& plan : result.plans) {
        write_plan(out, question, plan, with_rows);
    }
    out.end_array();
    if (with_rows) {
        write_modules(out, question.tree);
    } else {
        out.member("modules_note", every_row_in_a_unit ? "more than 20,000 modules: left out"
                                                       : "some modules lie outside all units: left out");
    }
    out.end_object();
    return out.take();
}

}  // namespace fsdplan
