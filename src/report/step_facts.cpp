#include "report/step_facts.hpp"

#include <algorithm>
#include <map>

namespace fsdplan {
namespace {

std::string unit_name(const Schedule& schedule, std::int32_t unit) {
    const std::string& name = schedule.units[static_cast<std::size_t>(unit)];
    return name.empty() ? "the root" : name;
}

/// The numbers of a path as `*`, so that layers count together.
std::string without_numbers(const std::string& path) {
    std::string out;
    for (std::size_t i = 0; i < path.size(); ++i) {
        const bool starts = i == 0 || path[i - 1] == '.';
        const std::size_t end = std::min(path.find('.', i), path.size());
        const std::string part = path.substr(i, end - i);
        const bool number =
            starts && !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
        if (number) {
            out += '*';
            i = end - 1;
        } else {
            out += path[i];
        }
    }
    return out;
}

bool is_border(Mark mark) {
    switch (mark) {
        case Mark::forward_begin:
        case Mark::forward_end:
        case Mark::pre_backward:
        case Mark::post_backward:
        case Mark::loss:
        case Mark::final_end:
        case Mark::optimizer_step:
        case Mark::zero_grad:
            return true;
        default:
            return false;
    }
}

std::string mark_text(const Schedule& schedule, const Op& op) {
    const std::string unit = op.unit >= 0 ? unit_name(schedule, op.unit) : std::string();
    switch (static_cast<Mark>(op.detail)) {
        case Mark::forward_begin:
            return "forward of " + unit;
        case Mark::forward_end:
            return "end of forward of " + unit;
        case Mark::pre_backward:
            return "backward of " + unit;
        case Mark::post_backward:
            return "gradients of " + unit;
        case Mark::loss:
            return "loss";
        case Mark::final_end:
            return "end of backward";
        case Mark::optimizer_step:
            return "after the optimizer";
        default:
            return "zero_grad";
    }
}

}  // namespace

LastIteration last_iteration(const Schedule& schedule, const Run& run) {
    LastIteration out;
    if (schedule.iteration_begin.empty()) {
        out.end_ns = run.timeline.end_ns.empty() ? 0 : *std::ranges::max_element(run.timeline.end_ns);
        return out;
    }
    out.first_op = schedule.iteration_begin.back();
    out.begin_ns = run.iterations.back().begin_ns;
    out.end_ns = run.iterations.back().end_ns;
    return out;
}

std::vector<CollectiveRow> collective_rows(const Schedule& schedule, const Run& run) {
    const LastIteration last = last_iteration(schedule, run);
    std::vector<std::int32_t> row_of(schedule.ops.size(), -1);
    std::vector<CollectiveRow> rows;
    for (auto i = static_cast<std::size_t>(last.first_op); i < schedule.ops.size(); ++i) {
        const Op& op = schedule.ops[i];
        if (op.kind != OpKind::collective) {
            continue;
        }
        row_of[i] = static_cast<std::int32_t>(rows.size());
        rows.push_back({.op = static_cast<std::int32_t>(i),
                        .call = &schedule.collectives[static_cast<std::size_t>(op.target)],
                        .start_ns = run.timeline.start_ns[i] - last.begin_ns,
                        .end_ns = run.timeline.end_ns[i] - last.begin_ns});
    }
    std::vector<std::int64_t> longest(rows.size(), 0);
    for (const ExposedWait& wait : run.waits) {
        const std::int32_t r = wait.culprit < 0 ? -1 : row_of[static_cast<std::size_t>(wait.culprit)];
        if (r < 0) {
            continue;
        }
        const std::int64_t ns = wait.end_ns - wait.start_ns;
        rows[static_cast<std::size_t>(r)].exposed_ns += ns;
        if (ns > longest[static_cast<std::size_t>(r)]) {
            longest[static_cast<std::size_t>(r)] = ns;
            rows[static_cast<std::size_t>(r)].cause = wait.cause;
        }
    }
    return rows;
}

std::vector<CauseSum> cause_sums(const Schedule& schedule, const Run& run) {
    const LastIteration last = last_iteration(schedule, run);
    std::map<Cause, CauseSum> sums;
    for (const ExposedWait& wait : run.waits) {
        if (wait.start_ns >= last.begin_ns) {
            CauseSum& sum = sums[wait.cause];
            sum.cause = wait.cause;
            sum.ns += wait.end_ns - wait.start_ns;
            ++sum.count;
        }
    }
    std::vector<CauseSum> out;
    for (const auto& [cause, sum] : sums) {
        out.push_back(sum);
    }
    std::ranges::stable_sort(out, std::greater{}, &CauseSum::ns);
    return out;
}

std::vector<LiveRow> live_rows(const Schedule& schedule, const MemoryProfile& memory,
                               const ModuleTree& tree) {
    std::map<std::pair<Category, std::string>, LiveRow> rows;
    for (const std::int32_t b : live_at_peak(memory)) {
        const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(b)];
        std::string owner = buffer.module >= 0 ? tree.path(static_cast<ModuleIndex>(buffer.module))
                            : buffer.unit >= 0 ? schedule.units[static_cast<std::size_t>(buffer.unit)]
                                               : "-";
        owner = owner.empty() ? "(root)" : without_numbers(owner);
        LiveRow& row = rows[{buffer.category, owner}];
        row.category = buffer.category;
        row.owner = owner;
        row.bytes += buffer.bytes;
        ++row.count;
    }
    std::vector<LiveRow> out;
    for (auto& [key, row] : rows) {
        out.push_back(std::move(row));
    }
    std::ranges::stable_sort(out, std::greater{}, &LiveRow::bytes);
    return out;
}

std::vector<MemoryPoint> memory_points(const Schedule& schedule, const Run& run) {
    const LastIteration last = last_iteration(schedule, run);
    std::vector<MemoryPoint> points;
    MemoryPoint now;
    std::size_t next = 0;
    const std::vector<MemoryChange>& changes = run.memory->changes;
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
        for (; next < changes.size() && changes[next].op <= static_cast<std::int32_t>(i); ++next) {
            now.by_category[static_cast<std::size_t>(changes[next].category)] += changes[next].delta_bytes;
            now.allocated_bytes = changes[next].allocated_bytes;
            now.reserved_bytes = changes[next].reserved_bytes;
        }
        const Op& op = schedule.ops[i];
        if (static_cast<std::int64_t>(i) < last.first_op || op.kind != OpKind::mark ||
            !is_border(static_cast<Mark>(op.detail))) {
            continue;
        }
        now.op = static_cast<std::int32_t>(i);
        now.time_ns =
            run.timeline.issued_ns[i] - run.timeline.issued_ns[static_cast<std::size_t>(last.first_op)];
        now.where = mark_text(schedule, op);
        points.push_back(now);
        if (next == changes.size() && run.memory->out_of_memory) {
            break;  // nothing is known behind it
        }
    }
    return points;
}

std::string shown_op(const Schedule& schedule, std::int32_t op) {
    const Op& at_op = schedule.ops[static_cast<std::size_t>(op)];
    std::int32_t unit = at_op.unit;
    for (std::int32_t i = op; unit < 0 && i >= 0; --i) {
        unit = schedule.ops[static_cast<std::size_t>(i)].unit;
    }
    std::string out(name(at_op.pass));
    if (unit >= 0 && at_op.pass != Pass::optimizer) {
        out += " of " + unit_name(schedule, unit);
    }
    if (at_op.kind == OpKind::allocate) {
        std::string what(name(schedule.buffers[static_cast<std::size_t>(at_op.target)].category));
        std::ranges::replace(what, '_', ' ');
        out += ", at the allocation of " + what;
    }
    return out;
}

}  // namespace fsdplan
