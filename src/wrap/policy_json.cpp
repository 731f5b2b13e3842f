#include "wrap/policy_json.hpp"

namespace fsdplan {
namespace {

/// The value as JSON text, scalars only: what arguments of a unit are.
std::string as_json(const json::Value& value) {
    if (value.is_string()) {
        return json::quote(value.string());
    }
    if (value.is_array() || value.is_object()) {
        value.fail("a string, a number, true, false or null");
    }
    return value.shown();
}

}  // namespace

std::vector<PolicySpec::Rule> read_rules(const json::Value& rules) {
    std::vector<PolicySpec::Rule> out;
    for (const json::Value row : rules.elements()) {
        if (!row.is_array() || row.size() != 2) {
            row.fail("a pair of a class (or \"fqn:\" and a path) and true, false or an object");
        }
        auto part = row.elements().begin();
        PolicySpec::Rule rule;
        rule.selector = (*part).string();
        ++part;
        const json::Value value = *part;
        using Answer = PolicySpec::Rule::Answer;
        if (value.is_boolean()) {
            rule.answer = value.boolean() ? Answer::yes : Answer::no;
        } else if (value.is_object()) {
            rule.answer = Answer::arguments;
            for (const json::Value argument : value.members()) {
                rule.arguments.emplace_back(argument.key(), as_json(argument));
            }
        } else {
            rule.answer = Answer::invalid;  // PyTorch's ValueError, not ours
        }
        out.push_back(std::move(rule));
    }
    return out;
}

std::vector<PolicySpec::Call> read_calls(const json::Value& calls,
                                         const std::vector<std::string>& ignored_parameters) {
    std::vector<PolicySpec::Call> out;
    for (const json::Value entry : calls.elements()) {
        PolicySpec::Call call;
        call.list = entry.is_array();
        call.ignored_parameters = ignored_parameters;
        if (call.list) {
            call.modules = entry.strings();
            if (call.modules.empty()) {
                entry.fail("at least one module path");
            }
        } else {
            call.modules.emplace_back(entry.string());
        }
        out.push_back(std::move(call));
    }
    return out;
}

}  // namespace fsdplan
