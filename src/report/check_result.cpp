#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "fsdplan/base.hpp"
#include "fsdplan/report.hpp"

namespace fsdplan {
namespace {

using Keys = std::initializer_list<std::string_view>;

void strings(const json::Value& object, Keys keys) {
    for (const std::string_view key : keys) {
        object.at(key).string();
    }
}

// Numbers stay within what JavaScript holds exactly.
void integers(const json::Value& object, Keys keys, std::int64_t least = 0) {
    for (const std::string_view key : keys) {
        object.at(key).integer(least, largest_total);
    }
}

void truth_or_null(const json::Value& value) {
    if (!value.is_null() && !value.is_boolean()) {
        value.fail("true, false or null");
    }
}

void check_header(const json::Value& root) {
    const json::Value format = root.at("format");
    if (!format.is_string() || format.string() != "fsdplan.result") {
        format.fail("\"fsdplan.result\"");
    }
    const json::Value version = root.at("version");
    if (!version.is_integer() || version.integer() != 1) {
        version.fail("version 1");
    }
    const json::Value command = root.at("command");
    if (command.string() != "sweep") {
        command.fail("the result of a command that has a page, \"sweep\"");
    }
    strings(root, {"fsdplan"});
}

void check_question(const json::Value& root) {
    const json::Value model = root.at("model");
    strings(model, {"name", "source", "class"});
    integers(model, {"modules"});
    integers(model.at("parameters"), {"numel", "trainable_numel", "bytes"});
    model.at("notes").strings();

    const json::Value job = root.at("job");
    strings(job, {"runtime", "strategy", "storage_dtype", "param_dtype", "reduce_dtype", "optimizer",
                  "activation_checkpointing", "loss"});
    integers(job, {"world_size", "replicate", "shard", "batch", "seq", "accumulate"});
    job.at("use_orig_params").boolean();

    const json::Value cluster = root.at("cluster");
    strings(cluster, {"name", "gpu"});
    integers(cluster, {"gpus", "gpus_per_node", "memory_bytes", "budget_bytes"});

    for (const json::Value assumption : root.at("assumptions").elements()) {
        strings(assumption, {"name", "value", "from", "note"});
    }
}

void check_verdict(const json::Value& verdict) {
    truth_or_null(verdict.at("fits"));
    integers(verdict, {"left_bytes"}, -largest_total);
    strings(verdict, {"decided_by", "text"});
    for (const json::Value change : verdict.at("next").elements()) {
        strings(change, {"change", "effect"});
    }
}

void check_interval(const json::Value& value, std::string_view low, std::string_view middle,
                    std::string_view high) {
    integers(value, {low, middle, high});
    if (value.at(low).integer() > value.at(middle).integer()) {
        value.at(low).fail("at most " + std::string(middle));
    }
    if (value.at(high).integer() < value.at(middle).integer()) {
        value.at(high).fail("at least " + std::string(middle));
    }
}

void check_collectives(const json::Value& collectives) {
    for (const json::Value collective : collectives.elements()) {
        strings(collective, {"op"});
        integers(collective, {"count", "bytes"});
    }
}

void check_threshold(const json::Value& threshold) {
    const std::int64_t lo = threshold.at("lo").integer(0, largest_total);
    if (!threshold.at("hi").is_null()) {
        threshold.at("hi").integer(lo, largest_total);
    }
}

void check_units(const json::Value& plan, std::size_t modules) {
    integers(plan, {"units", "units_with_parameters", "largest_unit_numel", "root_numel"});
    strings(plan, {"largest_unit"});
    for (const json::Value count : plan.at("units_by_class").members()) {
        count.integer(0);
    }
    const std::size_t units = plan.at("unit_modules").strings().size();
    const json::Value numel = plan.at("unit_numel");
    for (const json::Value n : numel.elements()) {
        n.integer(0, largest_total);
    }
    if (numel.size() != units) {
        numel.fail("one number for each of the " + std::to_string(units) + " unit_modules");
    }
    if (modules == 0 && !plan.find("unit_of")) {
        return;
    }
    const json::Value unit_of = plan.at("unit_of");
    for (const json::Value unit : unit_of.elements()) {
        unit.integer(0, static_cast<std::int64_t>(units) - 1);
    }
    if (unit_of.size() != modules) {
        unit_of.fail("one index for each of the " + std::to_string(modules) + " modules");
    }
}

void check_memory(const json::Value& plan) {
    const json::Value peak = plan.at("peak");
    integers(peak, {"allocated_bytes", "reserved_bytes"});
    check_interval(peak, "low_bytes", "process_bytes", "high_bytes");
    for (const json::Value term : plan.at("memory").elements()) {
        strings(term, {"term", "note"});
        check_interval(term, "low_bytes", "bytes", "high_bytes");
        term.at("exact").boolean();
    }
    truth_or_null(plan.at("fits"));
    integers(plan, {"left_bytes"}, -largest_total);
}

void check_traffic(const json::Value& plan) {
    check_interval(plan, "step_low_ns", "step_ns", "step_high_ns");
    integers(plan, {"exposed_ns", "sent_bytes"});
    check_collectives(plan.at("collectives"));
    for (const json::Value strategy : plan.at("strategies").elements()) {
        strings(strategy, {"strategy"});
        integers(strategy, {"sent_bytes"});
        check_collectives(strategy.at("collectives"));
    }
}

void check_plan(const json::Value& plan, std::size_t modules) {
    check_threshold(plan.at("min_num_params"));
    strings(plan, {"label"});
    check_units(plan, modules);
    check_memory(plan);
    check_traffic(plan);
    for (const json::Value diagnostic : plan.at("diagnostics").elements()) {
        strings(diagnostic, {"rule", "severity", "unit", "message"});
        diagnostic.at("tensors").strings();
    }
    for (const json::Value code : plan.at("code").members()) {
        code.string();
    }
}

/// Number of rows; parents come before their children, and only the first row has none.
std::size_t check_modules(const json::Value& root) {
    const std::optional<json::Value> modules = root.find("modules");
    if (!modules) {
        return 0;
    }
    std::int64_t index = 0;
    for (const json::Value row : modules->elements()) {
        strings(row, {"name", "class"});
        integers(row, {"numel"});
        row.at("parent").integer(index == 0 ? -1 : 0, index - 1);
        ++index;
    }
    return modules->size();
}

}  // namespace

void check_result(std::string_view json, std::string_view file) {
    const json::Document document(json, std::string(file));
    const json::Value root = document.root();
    check_header(root);
    check_question(root);
    check_verdict(root.at("verdict"));
    const std::size_t modules = check_modules(root);
    if (const auto note = root.find("modules_note")) {
        note->string();
    }
    for (const json::Value plan : root.at("plans").elements()) {
        check_plan(plan, modules);
    }
    const json::Value recommended = root.at("recommended");
    if (!recommended.is_null()) {
        recommended.integer(0, static_cast<std::int64_t>(root.at("plans").size()) - 1);
    }
}

}  // namespace fsdplan
