#include "fsdplan/report.hpp"
#include "report/json_parts.hpp"
#include "report/json_step.hpp"
#include "report/step_facts.hpp"

namespace fsdplan {
namespace {

std::string_view unit_of(const Schedule& schedule, const Op& op) {
    return op.unit < 0 ? std::string_view()
                       : std::string_view(schedule.units[static_cast<std::size_t>(op.unit)]);
}

void write_collectives(JsonWriter& out, const StepResult& result) {
    out.key("collectives").begin_array();
    for (const CollectiveRow& r : collective_rows(result.schedule, result.run)) {
        const Op& op = result.schedule.ops[static_cast<std::size_t>(r.op)];
        const CollectiveTime& time = result.run.collectives[static_cast<std::size_t>(op.target)];
        out.begin_object(true);
        out.member("op", name(r.call->kind)).member("unit", unit_of(result.schedule, op));
        out.member("phase", name(op.pass)).member("dtype", name(r.call->dtype));
        out.member("input_numel", r.call->input_numel).member("output_numel", r.call->output_numel);
        out.member("group_size", r.call->ranks).member("prefetched", op.prefetched != 0);
        out.member("start_ns", r.start_ns).member("end_ns", r.end_ns);
        out.member("exposed_ns", r.exposed_ns).key("cause");
        if (r.exposed_ns > 0) {
            out.value(name(r.cause));
        } else {
            out.null();
        }
        out.member("origin", name(time.origin));
        out.end_object();
    }
    out.end_array();
}

void write_timeline(JsonWriter& out, const StepResult& result) {
    out.key("memory_timeline").begin_array();
    for (const MemoryPoint& point : memory_points(result.schedule, result.run)) {
        out.begin_object();
        out.member("time_ns", point.time_ns).member("where", point.where);
        out.member("allocated_bytes", point.allocated_bytes).member("reserved_bytes", point.reserved_bytes);
        write_categories(out, "by_category", point.by_category);
        out.end_object();
    }
    out.end_array();
}

}  // namespace

std::string json_report(const SweepQuestion& question, const StepResult& result, std::string_view version) {
    JsonWriter out = begin_result("simulate", version);
    write_question(out, question, question.jobs.front(), result.assumptions);
    out.member("plan", result.plan.label);
    out.member("units", result.plan.units);
    out.member("runs", result.plan.runs() && !result.run.memory->out_of_memory);
    out.member("method", name(result.run.method));
    write_estimate(out, "step_ns", result.run.step_ns);
    write_estimate(out, "exposed_ns", result.run.exposed_ns);
    out.key("stragglers");
    if (result.run.stragglers) {
        out.begin_object(true);
        out.member("expected_ns", result.run.stragglers->expected_ns);
        out.member("p99_ns", result.run.stragglers->p99_ns);
        out.end_object();
    } else {
        out.null();
    }
    write_waits(out, result);
    write_peak(out, result, question.tree);
    write_timeline(out, result);
    write_collectives(out, result);
    out.key("notes").begin_array();
    for (const std::string& note : result.run.notes) {
        out.value(note);
    }
    out.end_array();
    out.end_object();
    return out.take();
}

}  // namespace fsdplan
