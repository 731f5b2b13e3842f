#include <algorithm>

#include "fsdplan/report.hpp"
#include "report/checkpoint_parts.hpp"
#include "report/json_parts.hpp"
#include "report/json_plan.hpp"
#include "report/wrap_plan_json.hpp"

namespace fsdplan {
namespace {

void write_found(JsonWriter& out, const SweepQuestion& question, const PlanResult& plan) {
    out.begin_object();
    write_plan_members(out, question, plan, false);
    write_wrap_plan(out, question.tree, plan.wrap, question.jobs[plan.job]);
    out.end_object();
}

void write_proof(JsonWriter& out, const SearchProof& proof, Objective objective) {
    out.key("bound").begin_object();
    out.member(objective == Objective::time ? "step_ns" : "allocated_bytes", proof.bound);
    out.member("gap", proof.gap);
    out.member("limit_bytes", proof.limit_bytes).member("floor_bytes", proof.floor_bytes);
    out.member("complete", proof.complete).member("stopped", proof.stopped);
    out.member("simulated", proof.simulated).member("settings", proof.settings);
    out.member("settings_pruned", proof.settings_pruned).member("log10_plans", proof.log10_plans);
    out.member("space", proof.space);
    out.end_object();
}

void write_waits(JsonWriter& out, const std::vector<std::pair<Cause, std::int64_t>>& waits) {
    out.key("waits").begin_array();
    for (const auto& [cause, ns] : waits) {
        out.begin_object().member("cause", name(cause)).member("ns", ns).end_object();
    }
    out.end_array();
}

}  // namespace

std::string json_report(const SearchQuestion& asked, const SearchResult& result, std::string_view version) {
    const SweepQuestion question = with_jobs(asked.question, result.jobs);
    JsonWriter out = begin_result("plan", version);
    write_question(out, question, asked.question.jobs.front(), result.assumptions);
    write_verdict(out, result.verdict);
    out.key("recommended");
    if (result.recommended) {
        write_found(out, question, *result.recommended);
    } else {
        out.null();
    }
    write_waits(out, result.waits);
    out.key("alternatives").begin_array();
    for (const PlanResult& plan : result.alternatives) {
        write_found(out, question, plan);
    }
    out.end_array();
    out.key("current");
    write_plan(out, question, result.current, false);
    if (!result.recommended) {
        out.key("closest");
        write_plan(out, question, result.closest, false);
    }
    write_proof(out, result.proof, asked.objective);
    out.key("frontier").begin_array();
    for (const FrontierPoint& point : result.frontier) {
        out.begin_object();
        out.member("allocated_bytes", point.allocated_bytes).member("step_ns", point.step_ns);
        out.member("ns_per_token", point.ns_per_token).member("label", point.label);
        write_settings(out, point.settings);
        out.end_object();
    }
    out.end_array();
    out.key("checkpoint");
    if (result.checkpoint) {
        out.begin_object();
        write_checkpoint(out, *result.checkpoint);
        out.end_object();
    } else {
        out.null();
    }
    out.key("code").begin_object();
    if (result.recommended && !result.recommended->code.fsdp1.empty()) {
        out.member("fsdp1", result.recommended->code.fsdp1);
    }
    if (result.recommended && !result.recommended->code.fsdp2.empty()) {
        out.member("fsdp2", result.recommended->code.fsdp2);
    }
    out.end_object().end_object();
    return out.take();
}

}  // namespace fsdplan
