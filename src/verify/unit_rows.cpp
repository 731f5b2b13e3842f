#include "verify/unit_rows.hpp"

#include "verify/digest.hpp"
#include "verify/words.hpp"

namespace fsdplan {
namespace {

/// The recorder's words for an error, by rule.
std::string_view recorded_reason(WrapRule rule) {
    switch (rule) {
        case WrapRule::shared_module_wrapped_inside:
            return "a shared module was reached a second time after something inside it had been wrapped";
        case WrapRule::mixed_requires_grad_in_target:
            return "frozen and trainable parameters in one unit while use_orig_params is off (checked before "
                   "wrapping)";
        case WrapRule::mixed_requires_grad:
            return "frozen and trainable parameters in one flat parameter while use_orig_params is off";
        case WrapRule::mixed_dtype:
            return "parameters of different dtypes in one flat parameter";
        case WrapRule::integer_parameter:
            return "the first parameter of a unit is not floating point";
        case WrapRule::scalar_parameter:
            return "a unit manages a zero-dimensional parameter";
        case WrapRule::empty_flat_parameter:
            return "every parameter of a unit has zero elements, so its flat parameter would be empty";
        case WrapRule::uninitialized_parameter:
            return "a lazy module's parameter has no shape yet";
        case WrapRule::custom_policy_value:
            return "the lambda of a CustomPolicy returned neither a bool nor a dict";
        case WrapRule::already_wrapped:
            return "a module below the root already carries FSDP state";
        case WrapRule::ignored_both:
            return "ignored_modules and ignored_states were both given";
        case WrapRule::fully_shard_twice:
            return "fully_shard was applied twice to one module";
        case WrapRule::fully_shard_container:
            return "fully_shard was called on a container without a forward";
        case WrapRule::already_sharded:
            return "a parameter of this group is already a sharded DTensor of an earlier group (the mesh has "
                   "no dimension names)";
        case WrapRule::tied_across_groups:
            return "one original parameter ended up in two groups";
        case WrapRule::several_roots:
            return "the outermost fully_shard call covers several modules";
        default:
            return "";
    }
}

std::string joined_or_none(const std::vector<std::string>& parts) {
    const std::string out = joined(parts);
    return out.empty() ? "(none)" : out;
}

std::string shown_arguments(const NotedArguments& arguments) {
    std::string out;
    for (const auto& [name, value] : arguments) {
        out += name + "=" + value + " ";
    }
    return out;
}

NotedArguments recorded_arguments(const json::Value& row) {
    NotedArguments out;
    if (const auto arguments = row.find("kwargs")) {
        for (const json::Value value : arguments->members()) {
            out[std::string(value.key())] = json_text(value);
        }
    }
    return out;
}

}  // namespace

std::string shown_error(std::string_view type, std::string_view reason) {
    return std::string(type) + ": " + std::string(reason);
}

std::string shown_error(const Diagnostic* error) {
    return error == nullptr ? "none" : shown_error(error->error_type, recorded_reason(error->rule));
}

void compare_error(const json::Value& row, const char* key, const std::string& got, CaseReport& report) {
    const auto recorded = row.find(key);
    report.compare(
        key, recorded ? shown_error(recorded->at("type").string(), recorded->at("reason").string()) : "none",
        got);
}

void compare_unit(const json::Value& row, const Unit& unit, const ModuleTree& tree,
                  const NotedArguments& arguments, const std::string& where, CaseReport& report) {
    report.compare(where + " module", std::string(row.at("module").string()), unit.path);
    report.compare(where + " class", std::string(row.at("class").string()),
                   tree.class_info(unit.module).name);
    report.compare(where + " numel", row.at("numel").shown(), std::to_string(unit.numel));
    if (const auto count = row.find("parameter_count")) {
        report.compare(where + " parameter count", count->shown(),
                       std::to_string(unit.parameter_paths.size()));
        report.compare(where + " parameter digest", std::string(row.at("sha256").string()),
                       sha256_of_lines(unit.parameter_paths));
    } else {
        report.compare(where + " parameters", joined_or_none(row.at("parameters").strings()),
                       joined_or_none(unit.parameter_paths));
    }
    report.compare(where + " arguments", shown_arguments(recorded_arguments(row)),
                   shown_arguments(arguments));
    std::vector<std::string> modules;
    for (const ModuleIndex m : unit.modules) {
        modules.push_back(tree.path(m));
    }
    const auto recorded_modules = row.find("modules");
    report.compare(where + " modules",
                   recorded_modules ? joined_or_none(recorded_modules->strings())
                                    : std::string(row.at("module").string()),
                   recorded_modules ? joined_or_none(modules) : unit.path);
}

}  // namespace fsdplan
