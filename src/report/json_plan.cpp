#include "report/json_plan.hpp"

#include <algorithm>
#include <map>

#include "fsdplan/report.hpp"
#include "report/facts.hpp"
#include "report/json_parts.hpp"

namespace fsdplan {
namespace {

void write_collectives(JsonWriter& out, const std::vector<Collective>& collectives) {
    struct Sum {
        std::int64_t count = 0;
        std::int64_t bytes = 0;
    };
    std::map<CollectiveKind, Sum> sums;
    for (const Collective& call : collectives) {
        sums[call.kind].count += call.count;
        sums[call.kind].bytes += call.count * call.full_size().count;
    }
    out.key("collectives").begin_array();
    for (const auto& [kind, sum] : sums) {
        out.begin_object();
        out.member("op", name(kind)).member("count", sum.count).member("bytes", sum.bytes);
        out.end_object();
    }
    out.end_array();
}

void write_units(JsonWriter& out, const SweepQuestion& question, const PlanResult& plan, bool with_rows) {
    out.member("units", plan.units);
    out.member("units_with_parameters", plan.units_with_parameters);
    out.member("largest_unit", plan.largest_unit < 0
                                   ? std::string()
                                   : plan.wrap.units[static_cast<std::size_t>(plan.largest_unit)].path);
    out.member("largest_unit_numel", plan.largest_unit_numel);
    out.member("root_numel", plan.root_numel);
    out.key("units_by_class").begin_object();
    for (const auto& [name, count] : plan.units_by_class) {
        out.member(name, count);
    }
    out.end_object();
    out.key("unit_modules").begin_array();
    for (const Unit& unit : plan.wrap.units) {
        out.value(unit.path);
    }
    out.end_array();
    out.key("unit_numel").begin_array(true);
    for (const Unit& unit : plan.wrap.units) {
        out.value(unit.numel);
    }
    out.end_array();
    if (with_rows) {
        out.key("unit_of").begin_array(true);
        for (const std::int32_t unit : unit_of_rows(question.tree, plan.wrap)) {
            out.value(static_cast<std::int64_t>(unit));
        }
        out.end_array();
    }
}

void write_memory(JsonWriter& out, const PlanResult& plan) {
    out.key("peak").begin_object();
    out.member("allocated_bytes", plan.allocated_bytes);
    out.member("reserved_bytes", plan.reserved_bytes);
    out.member("process_bytes", plan.process_bytes.value);
    out.member("low_bytes", plan.process_bytes.low);
    out.member("high_bytes", plan.process_bytes.high);
    out.member("phase", name(plan.peak_phase));
    out.member("unit", plan.peak_unit);
    out.end_object();
    out.key("memory").begin_array();
    for (const MemoryTerm& term : plan.memory) {
        out.begin_object();
        out.member("term", term.name);
        out.member("bytes", term.bytes.value);
        out.member("low_bytes", term.bytes.low);
        out.member("high_bytes", term.bytes.high);
        out.member("exact", term.exact);
        out.member("note", term.note);
        out.member("largest_bytes", term.largest_bytes);
        out.end_object();
    }
    out.end_array();
}

void write_diagnostics(JsonWriter& out, const WrapPlan& plan) {
    out.key("diagnostics").begin_array();
    for (const Diagnostic& d : plan.diagnostics) {
        out.begin_object();
        out.member("rule", name(d.rule));
        out.member("severity", name(d.severity));
        out.member("unit", d.unit);
        out.key("tensors").begin_array();
        for (const std::string& tensor : d.tensors) {
            out.value(tensor);
        }
        out.end_array();
        out.member("message", d.message);
        out.end_object();
    }
    out.end_array();
}

}  // namespace

void write_verdict(JsonWriter& out, const Verdict& verdict) {
    out.key("verdict").begin_object();
    write_truth(out, "fits", verdict.fits);
    out.member("left_bytes", verdict.left_bytes);
    out.member("decided_by", verdict.decided_by);
    out.member("text", verdict.text);
    out.key("next").begin_array();
    for (const Change& change : verdict.next) {
        out.begin_object().member("change", change.change).member("effect", change.effect).end_object();
    }
    out.end_array().end_object();
}

void write_settings(JsonWriter& out, const std::vector<std::pair<std::string, std::string>>& settings) {
    out.key("settings").begin_object();
    for (const auto& [option, value] : settings) {
        out.member(option, value);
    }
    out.end_object();
}

void write_plan_members(JsonWriter& out, const SweepQuestion& question, const PlanResult& plan,
                        bool with_rows) {
    out.key("min_num_params").begin_object().member("lo", plan.threshold_low).key("hi");
    if (plan.threshold_high) {
        out.value(*plan.threshold_high);
    } else {
        out.null();
    }
    out.end_object();
    out.member("label", plan.label);
    if (!plan.settings.empty()) {
        write_settings(out, plan.settings);
    }
    write_units(out, question, plan, with_rows);
    write_memory(out, plan);
    out.member("step_ns", plan.step_ns.value);
    out.member("step_low_ns", plan.step_ns.low);
    out.member("step_high_ns", plan.step_ns.high);
    out.member("exposed_ns", plan.exposed_ns.value);
    out.member("sent_bytes", plan.sent_bytes);
    write_collectives(out, plan.collectives);
    out.key("strategies").begin_array();
    for (const StrategyTraffic& strategy : plan.strategies) {
        out.begin_object();
        out.member("strategy", strategy.strategy).member("sent_bytes", strategy.sent_bytes);
        write_collectives(out, strategy.collectives);
        out.end_object();
    }
    out.end_array();
    write_truth(out, "fits", plan.fits);
    out.member("left_bytes", plan.left_bytes);
    write_diagnostics(out, plan.wrap);
    out.key("code").begin_object();
    if (!plan.code.fsdp1.empty()) {
        out.member("FSDP1", plan.code.fsdp1);
    }
    if (!plan.code.fsdp2.empty()) {
        out.member("FSDP2", plan.code.fsdp2);
    }
    out.end_object();
}

void write_plan(JsonWriter& out, const SweepQuestion& question, const PlanResult& plan, bool with_rows) {
    out.begin_object();
    write_plan_members(out, question, plan, with_rows);
    out.end_object();
}

void write_modules(JsonWriter& out, const ModuleTree& tree) {
    const std::vector<std::string> names = names_in_parents(tree);
    out.key("modules").begin_array();
    for (std::size_t m = 0; m < tree.size(); ++m) {
        out.begin_object(true);
        out.member("name", names[m]);
        out.member("class", short_name(tree.class_info(static_cast<ModuleIndex>(m)).name));
        out.member("parent", static_cast<std::int64_t>(tree.parent[m]));
        out.member("numel", tree.numel[m]);
        out.end_object();
    }
    out.end_array();
}

}  // namespace fsdplan
