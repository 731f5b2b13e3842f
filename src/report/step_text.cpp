#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/quantity.hpp"
#include "fsdplan/report.hpp"
#include "report/step_facts.hpp"
#include "report/step_parts.hpp"
#include "report/text_parts.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_points = 28;
constexpr std::size_t bar_columns = 32;

std::string timeline_lines(const StepResult& result) {
    std::vector<MemoryPoint> points = memory_points(result.schedule, result.run);
    if (points.empty()) {
        return "";
    }
    // Evenly, with the highest one among them.
    const auto highest = std::ranges::max_element(points, {}, &MemoryPoint::allocated_bytes);
    const std::int64_t most = std::max<std::int64_t>(1, highest->allocated_bytes);
    const std::int32_t highest_op = highest->op;
    const std::size_t step = points.size() / most_points + 1;
    std::string text = "\nMemory through a step at the borders of units, by the host's clock:\n";
    for (std::size_t i = 0; i < points.size(); ++i) {
        const MemoryPoint& p = points[i];
        if (i % step != 0 && p.op != highest_op) {
            continue;
        }
        const auto bar =
            static_cast<std::size_t>(p.allocated_bytes * static_cast<std::int64_t>(bar_columns) / most);
        text += fmt::format("  {:>9}  {:>10}  {:<{}}  {}\n", show_duration(p.time_ns),
                            show_bytes(p.allocated_bytes), std::string(bar, '#'), bar_columns,
                            fitted(p.where, text_width - 27 - bar_columns));
    }
    return text;
}

std::string collective_lines(const StepResult& result) {
    struct Sum {
        std::int64_t count = 0;
        std::int64_t exposed_ns = 0;
        std::int32_t target = -1;
    };
    using Key = std::pair<Pass, std::int32_t>;
    std::vector<Key> order;
    std::map<Key, Sum> sums;
    for (const CollectiveRow& r : collective_rows(result.schedule, result.run)) {
        const Op& op = result.schedule.ops[static_cast<std::size_t>(r.op)];
        const Key key{op.pass == Pass::recompute ? Pass::backward : op.pass, op.target};
        Sum& sum = sums[key];
        if (sum.count++ == 0) {
            order.push_back(key);
        }
        sum.exposed_ns += r.exposed_ns;
    }
    std::string text = "\nCollectives of a step:\n";
    for (const Key& key : order) {
        const Sum& sum = sums[key];
        const CollectiveCall& call = result.schedule.collectives[static_cast<std::size_t>(key.second)];
        const CollectiveTime& time = result.run.collectives[static_cast<std::size_t>(key.second)];
        text +=
            fmt::format("  {:>4} x {:<14} {:<9} {:>9} over {:>5}  {:>8} each ({}), {} exposed\n", sum.count,
                        name(call.kind), name(key.first), show_bytes(call.full_size().count), call.ranks,
                        show_duration(time.ns.value), name(time.origin), show_duration(sum.exposed_ns));
    }
    return text;
}

}  // namespace

std::string text_report(const SweepQuestion& question, const StepResult& result) {
    const TrainingJob& job = question.jobs.front();
    std::string text =
        wrapped(step_verdict(result, question.cluster), 0) + "\n\n" + question_lines(question, job) + "\n";
    text += row("Plan", result.plan.label);
    text += row("Units",
                fmt::format("{}, largest {} elements, root {}", result.plan.units,
                            show_numel(result.plan.largest_unit_numel), show_numel(result.plan.root_numel)));
    text += time_lines(result);
    text += memory_lines(result);
    text += live_lines(result, question.tree);
    text += timeline_lines(result);
    text += collective_lines(result);
    for (const std::string& note : result.run.notes) {
        text += "\n" + wrapped("note: " + note, 6);
    }
    return text + (result.run.notes.empty() ? "" : "\n");
}

}  // namespace fsdplan
