#include "fsdplan/report.hpp"
#include "report/json_parts.hpp"
#include "report/step_facts.hpp"

namespace fsdplan {
namespace {

void write_estimate(JsonWriter& out, std::string_view key, const Estimate& e) {
    out.key(key).begin_object(true);
    out.member("value", e.value).member("low", e.low).member("high", e.high);
    out.end_object();
}

void write_categories(JsonWriter& out, std::string_view key,
                      const std::array<std::int64_t, category_count>& bytes) {
    out.key(key).begin_object(true);
    for (std::size_t c = 0; c < category_count; ++c) {
        if (bytes[c] != 0) {
            out.member(name(static_cast<Category>(c)), bytes[c]);
        }
    }
    out.end_object();
}

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

void write_waits(JsonWriter& out, const StepResult& result) {
    out.key("waits").begin_array();
    for (const CauseSum& sum : cause_sums(result.schedule, result.run)) {
        out.begin_object(true);
        out.member("cause", name(sum.cause)).member("ns", sum.ns).member("count", sum.count);
        out.end_object();
    }
    out.end_array();
}

void write_peak(JsonWriter& out, const StepResult& result, const ModuleTree& tree) {
    const MemoryProfile& memory = *result.run.memory;
    out.key("peak").begin_object();
    out.member("allocated_bytes", memory.peak.allocated_bytes);
    write_estimate(out, "reserved_bytes", *result.run.reserved_bytes);
    write_estimate(out, "process_bytes", *result.run.process_bytes);
    out.member("host_bytes", memory.host_peak_bytes);
    out.member("alloc_retries", memory.alloc_retries.value_or(0));
    out.member("at", shown_op(result.schedule, memory.peak.op));
    write_categories(out, "by_category", memory.peak.by_category);
    out.key("out_of_memory");
    if (memory.out_of_memory) {
        const OutOfMemory& oom = *memory.out_of_memory;
        out.begin_object(true);
        out.member("at", shown_op(result.schedule, oom.op)).member("requested_bytes", oom.requested_bytes);
        out.member("allocated_bytes", oom.allocated_bytes).member("reserved_bytes", oom.reserved_bytes);
        out.member("free_bytes", oom.free_bytes);
        out.end_object();
    } else {
        out.null();
    }
    out.end_object();
    out.key("peak_live").begin_array();
    for (const LiveRow& live : live_rows(result.schedule, memory, tree)) {
        out.begin_object(true);
        out.member("category", name(live.category)).member("owner", live.owner);
        out.member("bytes", live.bytes).member("buffers", live.count);
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
    JsonWriter out;
    out.begin_object();
    out.member("format", "fsdplan.result").member("version", std::int64_t{1}).member("command", "simulate");
    out.member("fsdplan", version);
    write_model(out, question);
    write_job(out, question, question.jobs.front());
    write_cluster(out, question.cluster);
    write_assumptions(out, result.assumptions);
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
