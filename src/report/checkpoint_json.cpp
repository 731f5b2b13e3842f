#include "fsdplan/report.hpp"
#include "report/checkpoint_parts.hpp"
#include "report/json_parts.hpp"
#include "report/json_step.hpp"

namespace fsdplan {
namespace {

void write_pass(JsonWriter& out, std::string_view key, const CheckpointPass& pass) {
    out.key(key).begin_object();
    out.member("device_peak_bytes", pass.device_peak_bytes);
    out.member("host_peak_bytes", pass.host_peak_bytes).member("host_node_bytes", pass.host_node_bytes);
    out.member("collectives", pass.collectives).member("collective_bytes", pass.collective_bytes);
    write_estimate(out, "gather_ns", pass.gather_ns);
    write_estimate(out, "copy_ns", pass.copy_ns);
    out.end_object();
}

void write_format(JsonWriter& out, const CheckpointCost& cost, const CheckpointPlan& plan) {
    out.begin_object();
    out.member("type", cost.format->type).member("help", cost.format->help);
    out.key("refused");
    if (cost.refused) {
        out.begin_object();
        out.member("type", cost.refused->error_class).member("reason", cost.refused->reason);
        out.end_object();
    } else {
        out.null();
    }
    out.member("device_peak_bytes", cost.save.device_peak_bytes);
    out.member("host_peak_bytes", cost.save.host_peak_bytes);
    out.member("host_node_bytes", cost.save.host_node_bytes);
    out.member("written_bytes", cost.written_bytes).member("rank_written_bytes", cost.rank_written_bytes);
    out.member("files", cost.files).member("collectives", cost.save.collectives);
    out.member("time_ns", cost.time_ns.value);
    out.member("time_low_ns", cost.time_ns.low).member("time_high_ns", cost.time_ns.high);
    write_estimate(out, "write_ns", cost.write_ns);
    out.member("fits", cost.fits(plan.resident_bytes, plan.budget_bytes));
    out.member("exceeds_timeout", cost.exceeds_timeout);
    write_pass(out, "save", cost.save);
    write_pass(out, "load", cost.load);
    out.end_object();
}

void write_load(JsonWriter& out, const CheckpointLoad& load) {
    const Compatibility& found = load.found;
    out.member("saved_by", load.save).member("loaded_by", load.load);
    out.member("outcome", name(found.outcome));
    out.key("error");
    if (found.error_class.empty()) {
        out.null();
    } else {
        out.begin_object();
        out.member("type", found.error_class).member("cause", found.cause_class);
        out.member("stage", found.stage).member("code", found.code);
        out.key("ranks").begin_array(true);
        for (const std::int64_t rank : found.ranks) {
            out.value(rank);
        }
        out.end_array().member("reason", found.reason).end_object();
    }
    out.member("model_tensors_wrong", found.model_wrong);
    out.member("optimizer_tensors_wrong", found.optimizer_wrong);
    out.key("notes").begin_array();
    for (const std::string& note : found.notes) {
        out.value(note);
    }
    out.end_array().member("remedy", load.remedy);
}

}  // namespace

void write_checkpoint(JsonWriter& out, const CheckpointPlan& plan) {
    out.member("save_verdict", plan.verdict).member("resident_bytes", plan.resident_bytes);
    out.key("recommended_format");
    if (plan.recommended) {
        out.value(plan.costs[*plan.recommended].format->type);
    } else {
        out.null();
    }
    out.key("formats").begin_array();
    for (const CheckpointCost& cost : plan.costs) {
        write_format(out, cost, plan);
    }
    out.end_array();
}

std::string json_report(const SweepQuestion& question, const CheckpointResult& result,
                        std::string_view version) {
    JsonWriter out = begin_result("checkpoint", version);
    write_question(out, question, question.jobs.front(), result.assumptions);
    out.member("plan", result.checkpoint.label);
    write_checkpoint(out, result.checkpoint);
    const std::optional<std::size_t> shown =
        result.checkpoint.asked ? result.checkpoint.asked : result.checkpoint.recommended;
    out.member("code", shown ? checkpoint_code(*result.checkpoint.costs[*shown].format) : std::string());
    if (result.load) {
        write_load(out, *result.load);
    }
    if (result.mismatch) {
        out.key("mismatch").begin_object();
        out.member("saved", result.mismatch->saved).member("current", result.mismatch->current);
        out.member("ranks", result.mismatch->ranks).member("remedy", result.mismatch->remedy);
        out.end_object();
    }
    out.end_object();
    return out.take();
}

}  // namespace fsdplan
