#include "fsdplan/report.hpp"
#include "report/json_parts.hpp"
#include "report/json_step.hpp"

namespace fsdplan {
namespace {

void write_predicted(JsonWriter& out, const StepResult& predicted) {
    const Run& run = predicted.run;
    out.key("predicted").begin_object();
    out.member("allocated_bytes", run.memory->peak.allocated_bytes);
    out.member("reserved_bytes", run.memory->reserved_peak_bytes.value_or(0));
    out.member("sent_bytes", sent_bytes(traffic_of(predicted.schedule)));
    write_estimate(out, "step_ns", run.step_ns);
    write_estimate(out, "exposed_ns", run.exposed_ns);
    out.end_object();
}

void write_out_of_memory(JsonWriter& out, const MemoryProfile& memory) {
    out.key("out_of_memory");
    if (!memory.out_of_memory) {
        out.null();
        return;
    }
    out.begin_object(true);
    out.member("op", std::int64_t{memory.out_of_memory->op});
    out.member("requested_bytes", memory.out_of_memory->requested_bytes);
    out.member("reserved_bytes", memory.out_of_memory->reserved_bytes).end_object();
}

void write_measured(JsonWriter& out, const MeasuredStep& result) {
    const Run& run = result.measured.run;
    out.key("measured").begin_object();
    out.member("backend", result.backend).member("library", result.library);
    out.member("scale", result.scale).member("repeats", std::int64_t{result.repeats});
    out.member("allocated_bytes", run.memory->peak.allocated_bytes);
    out.member("reserved_bytes", run.memory->reserved_peak_bytes.value_or(0));
    out.member("sent_bytes", result.measured.sent_bytes);
    write_estimate(out, "step_ns", run.step_ns);
    write_estimate(out, "exposed_ns", run.exposed_ns);
    write_out_of_memory(out, *run.memory);
    out.key("ranks").begin_array();
    for (const RankResult& rank : result.measured.ranks) {
        out.begin_object(true);
        out.member("requested_bytes", rank.requested_bytes);
        out.member("allocated_bytes", rank.allocated_bytes).member("reserved_bytes", rank.reserved_bytes);
        out.member("sent_bytes", rank.sent_bytes).member("step_ns", rank.step_ns);
        out.member("out_of_memory", rank.out_of_memory).end_object();
    }
    out.end_array().end_object();
}

void write_errors(JsonWriter& out, const std::vector<PredictionError>& errors) {
    out.key("errors").begin_array();
    for (const PredictionError& error : errors) {
        out.begin_object(true);
        out.member("key", error.key).member("predicted", error.predicted);
        out.member("measured", error.measured).key("relative");
        if (const std::optional<double> relative = error.relative()) {
            out.value(*relative);
        } else {
            out.null();
        }
        out.member("judged", error.judged).end_object();
    }
    out.end_array();
}

}  // namespace

std::string json_report(const SweepQuestion& question, const MeasuredStep& result, std::string_view version) {
    JsonWriter out = begin_result("run", version);
    write_question(out, question, question.jobs.front(), result.predicted.assumptions);
    out.member("plan", result.predicted.plan.label);
    write_predicted(out, result.predicted);
    write_measured(out, result);
    write_errors(out, result.errors);
    out.key("verdict").begin_object(true);
    out.member("within", all_within(result.errors)).member("tolerance", result.tolerance).end_object();
    out.end_object();
    return out.take();
}

}  // namespace fsdplan
