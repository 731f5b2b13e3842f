#include "report/step_parts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/quantity.hpp"
#include "report/step_facts.hpp"
#include "report/text_parts.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_live = 16;

std::string spaced(std::string_view name) {
    std::string text(name);
    std::ranges::replace(text, '_', ' ');
    return text;
}

std::string between(const Estimate& e, std::string (*show)(std::int64_t)) {
    return e.low == e.high ? show(e.value)
                           : fmt::format("{} ({} to {})", show(e.value), show(e.low), show(e.high));
}

}  // namespace

std::string step_verdict(const StepResult& result, const Cluster& cluster) {
    const MemoryProfile& memory = *result.run.memory;
    if (!result.plan.runs()) {
        for (const Diagnostic& d : result.wrap.diagnostics) {
            if (d.severity != Severity::warning) {
                return "PyTorch refuses: " + d.message;
            }
        }
    }
    if (memory.out_of_memory) {
        const OutOfMemory& oom = *memory.out_of_memory;
        return fmt::format("out of memory in {}: {} asked for with {} allocated and {} reserved of {}",
                           shown_op(result.schedule, oom.op), show_bytes(oom.requested_bytes),
                           show_bytes(oom.allocated_bytes), show_bytes(oom.reserved_bytes),
                           show_bytes(cluster.budget.count));
    }
    const std::int64_t retries = memory.alloc_retries.value_or(0);
    return fmt::format("runs in {}{}", show_bytes(cluster.budget.count),
                       retries > 0
                           ? fmt::format(", but the allocator has to give memory back {} times", retries)
                           : std::string());
}

std::string memory_lines(const StepResult& result) {
    const Run& run = result.run;
    const MemoryProfile& memory = *run.memory;
    std::string text = row("Allocated", show_bytes(memory.peak.allocated_bytes) +
                                            " at the peak: " + shown_op(result.schedule, memory.peak.op));
    text += row("Reserved",
                between(*run.reserved_bytes, show_bytes) +
                    ", by PyTorch's allocator replayed; the ends are frees seen at once and not before "
                    "a synchronisation");
    text += row("Process", between(*run.process_bytes, show_bytes) + ", with the CUDA context and NCCL");
    if (memory.host_peak_bytes > 0) {
        text += row("Host", show_bytes(memory.host_peak_bytes) + " pinned");
    }
    return text + "\nAlive at the peak:\n";
}

std::string live_lines(const StepResult& result, const ModuleTree& tree) {
    const std::vector<LiveRow> rows = live_rows(result.schedule, *result.run.memory, tree);
    std::string text;
    std::int64_t rest = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (i >= most_live) {
            rest += rows[i].bytes;
            continue;
        }
        text += fmt::format(
            "  {:>10}  {:<22} {}\n", show_bytes(rows[i].bytes), spaced(name(rows[i].category)),
            fitted(rows[i].owner +
                       (rows[i].count > 1 ? fmt::format("  ({} buffers)", rows[i].count) : std::string()),
                   text_width - 36));
    }
    if (rest > 0) {
        text += fmt::format("  {:>10}  in {} further kinds\n", show_bytes(rest), rows.size() - most_live);
    }
    return text;
}

std::string time_lines(const StepResult& result) {
    const Run& run = result.run;
    std::string text =
        row("Step", between(run.step_ns, show_duration) + ", " + show_duration(run.exposed_ns.value) +
                        " of it waiting for collectives; by " + spaced(name(run.method)));
    if (run.stragglers) {
        text += row("Ranks", "the slowest of them: " + show_duration(run.stragglers->expected_ns) +
                                 " expected, " + show_duration(run.stragglers->p99_ns) +
                                 " in one step of a hundred");
    }
    std::string causes;
    for (const CauseSum& sum : cause_sums(result.schedule, run)) {
        causes += fmt::format("{}{} {} ({} times)", causes.empty() ? "" : ", ", spaced(name(sum.cause)),
                              show_duration(sum.ns), sum.count);
    }
    text += row("Waits", causes.empty() ? "compute never stands still" : causes);
    return text;
}

}  // namespace fsdplan
