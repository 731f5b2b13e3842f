#include "report/diff_facts.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace fsdplan {
namespace {

std::string joined(const std::string& prefix, std::string_view key) {
    return prefix.empty() ? std::string(key) : prefix + "." + std::string(key);
}

bool is_scalar(const json::Value& value) {
    return !value.is_array() && !value.is_object();
}

/// An array of scalars in words; nothing for one of others.
std::optional<std::string> list(const json::Value& array) {
    std::string text;
    for (const json::Value element : array.elements()) {
        if (!is_scalar(element)) {
            return std::nullopt;
        }
        text += (text.empty() ? "" : ", ") +
                (element.is_string() ? std::string(element.string()) : element.shown());
    }
    return text;
}

/// The value at a path of members, such as "peak.process_bytes"; of an estimate its best guess.
std::optional<json::Value> find_path(const json::Value& from, std::string_view path) {
    json::Value value = from;
    while (!path.empty()) {
        const std::size_t dot = std::min(path.find('.'), path.size());
        const std::optional<json::Value> next =
            value.is_object() ? value.find(path.substr(0, dot)) : std::nullopt;
        if (!next) {
            return std::nullopt;
        }
        value = *next;
        path.remove_prefix(std::min(dot + 1, path.size()));
    }
    const std::optional<json::Value> best = value.is_object() ? value.find("value") : std::nullopt;
    return best ? best : value;
}

void add(const json::Value& from, std::string_view path, std::string_view key, DiffValues& out) {
    const std::optional<json::Value> value = find_path(from, path);
    const bool known = std::ranges::find(out, key, &DiffValues::value_type::first) != out.end();
    if (value && is_scalar(*value) && !value->is_null() && !known) {
        out.emplace_back(key, scalar(*value));
    }
}

std::string text_at(const json::Value& from, std::string_view path) {
    const std::optional<json::Value> value = find_path(from, path);
    return value && value->is_string() ? std::string(value->string()) : std::string();
}

/// The plan that a result is about: a sweep's recommended one, else the one that needs the least.
std::optional<json::Value> plan_of(const json::Value& root, std::vector<std::string>& notes) {
    const std::optional<json::Value> recommended = root.given("recommended");
    if (recommended && recommended->is_object()) {
        return recommended;
    }
    const std::optional<json::Value> plans = root.given("plans");
    if (!plans) {
        return root.find("step_ns") ? std::optional(root) : std::nullopt;
    }
    std::optional<json::Value> chosen;
    std::int64_t index = 0;
    const std::int64_t wanted =
        recommended ? recommended->integer(0, static_cast<std::int64_t>(plans->size()) - 1) : -1;
    for (const json::Value plan : plans->elements()) {
        const auto needs = [](const json::Value& p) { return p.at("peak").at("process_bytes").integer(); };
        if (index == wanted || (wanted < 0 && (!chosen || needs(plan) < needs(*chosen)))) {
            chosen = plan;
        }
        ++index;
    }
    if (wanted < 0 && chosen) {
        notes.emplace_back("no plan is recommended: the one that needs the least memory is compared");
    }
    return chosen;
}

/// Sums of one member of an array's objects by another member, which names them.
void add_sums(const json::Value& from, std::string_view array, std::string_view name,
              std::string_view summand, DiffValues& out) {
    const std::optional<json::Value> rows = from.given(array);
    if (!rows) {
        return;
    }
    std::map<std::string, std::int64_t> sums;
    for (const json::Value row : rows->elements()) {
        const std::string key = joined(joined(std::string(array), row.at(name).string()), summand);
        const std::optional<json::Value> value = row.find(summand);
        std::int64_t& sum = sums[key];
        sum = checked_add(sum, value ? value->integer(0, largest_total) : 1, row.where());  // 1: a row a call
    }
    for (const auto& [key, sum] : sums) {
        out.emplace_back(key, sum);
    }
}

/// A verdict of null is one too.
void add_verdict(const json::Value& root, DiffValues& out) {
    const std::optional<json::Value> fits = find_path(root, "verdict.fits");
    if (fits && fits->is_null()) {
        out.emplace_back("fits", std::string("depends"));
    }
    add(root, "verdict.fits", "fits", out);
    add(root, "runs", "fits", out);
}

void add_results(const json::Value& root, const std::optional<json::Value>& plan, DiffValues& out) {
    add_verdict(root, out);
    add(root, "verdict.left_bytes", "left_bytes", out);
    add(root, "verdict.decided_by", "decided_by", out);
    if (plan) {
        add(*plan, "label", "plan", out);
        add(root, "plan", "plan", out);
        for (const std::string_view key :
             {"peak.process_bytes", "peak.reserved_bytes", "peak.allocated_bytes", "peak.host_bytes",
              "step_ns", "exposed_ns", "sent_bytes", "units", "units_with_parameters", "largest_unit_numel",
              "root_numel"}) {
            add(*plan, key, key, out);
        }
        if (const std::optional<json::Value> counts = plan->given("units_by_class")) {
            flatten(*counts, "units_by_class", out);
        }
        add_sums(*plan, "collectives", "op", "count", out);
        add_sums(*plan, "memory", "term", "bytes", out);
        add_sums(*plan, "waits", "cause", "ns", out);
        if (const std::optional<json::Value> categories = find_path(*plan, "peak.by_category")) {
            for (const json::Value category : categories->members()) {
                out.emplace_back("peak.by_category." + std::string(category.key()) + ".bytes",
                                 scalar(category));
            }
        }
    }
    add(root, "bound.step_ns", "bound.step_ns", out);
    add(root, "bound.gap", "bound.gap", out);
}

constexpr std::array<std::string_view, 4> of_every_result{"format", "version", "command", "fsdplan"};
constexpr std::array<std::string_view, 4> settings_members{"model", "job", "cluster", "assumptions"};

/// Values of a result without a plan of its own.
void add_rest(const json::Value& root, DiffValues& out) {
    for (const json::Value member : root.members()) {
        const bool said = std::ranges::find(of_every_result, member.key()) != of_every_result.end() ||
                          std::ranges::find(settings_members, member.key()) != settings_members.end();
        if (said) {
            continue;
        }
        if (member.is_object()) {
            flatten(member, std::string(member.key()), out);
        } else if (member.is_array()) {
            out.emplace_back(std::string(member.key()) + " (entries)",
                             static_cast<std::int64_t>(member.size()));
        } else {
            out.emplace_back(member.key(), scalar(member));
        }
    }
}

/// Assumptions by name; several of one name as one text.
void add_assumptions(const json::Value& root, DiffValues& out) {
    const std::optional<json::Value> assumptions = root.given("assumptions");
    if (!assumptions) {
        return;
    }
    std::map<std::string, std::size_t> known;
    for (const json::Value one : assumptions->elements()) {
        const std::string key = "assumptions." + std::string(one.at("name").string());
        std::string value(one.at("value").string());
        const auto [place, is_new] = known.emplace(key, out.size());
        if (is_new) {
            out.emplace_back(key, std::move(value));
        } else {
            std::get<std::string>(out[place->second].second) += ", " + value;
        }
    }
}

std::optional<std::pair<std::int64_t, std::int64_t>> step_interval(const json::Value& plan) {
    const std::optional<json::Value> step = plan.find("step_ns");
    if (step && step->is_object()) {
        return std::pair(step->at("low").integer(), step->at("high").integer());
    }
    const auto low = plan.find("step_low_ns");
    const auto high = plan.find("step_high_ns");
    return low && high ? std::optional(std::pair(low->integer(), high->integer())) : std::nullopt;
}

}  // namespace

DiffValue scalar(const json::Value& value) {
    switch (value.type()) {
        case json::Type::boolean:
            return value.boolean();
        case json::Type::integer:
            return value.integer();
        case json::Type::real:
            return value.number();
        case json::Type::string:
            return std::string(value.string());
        case json::Type::null:
        case json::Type::array:
        case json::Type::object:
            break;
    }
    return {};
}

void flatten(const json::Value& object, const std::string& prefix, DiffValues& out) {
    for (const json::Value member : object.members()) {
        const std::string key = joined(prefix, member.key());
        if (member.is_object()) {
            flatten(member, key, out);
        } else if (!member.is_array()) {
            out.emplace_back(key, scalar(member));
        } else if (std::optional<std::string> text = list(member)) {
            out.emplace_back(key, std::move(*text));
        }
    }
}

ComparedResult compared_result(const json::Value& root) {
    const json::Value version = root.at("version");
    if (!version.is_integer() || version.integer() != 1) {
        version.fail("version 1");
    }
    ComparedResult out;
    out.command = text_at(root, root.find("command") ? "command" : "format");
    out.version = text_at(root, "fsdplan");
    for (const std::string_view member : {"job", "cluster", "model"}) {
        const std::optional<json::Value> value = root.given(member);
        if (value && value->is_object()) {
            flatten(*value, std::string(member), out.settings);
        } else if (value) {
            out.settings.emplace_back(std::string(member) + ".name", scalar(*value));
        }
    }
    add_assumptions(root, out.settings);
    out.model = text_at(root, text_at(root, "model").empty() ? "model.name" : "model");
    out.cluster = text_at(root, "cluster.name");
    const std::optional<json::Value> plan = plan_of(root, out.notes);
    if (plan) {
        for (const std::string_view member : {"settings", "wrap_plan"}) {
            if (const std::optional<json::Value> object = plan->given(member)) {
                flatten(*object, std::string(member), out.settings);
            }
        }
        out.step_ns = step_interval(*plan);
    }
    add_results(root, plan, out.results);
    if (out.results.empty()) {
        add_rest(root, out.results);
    }
    return out;
}

}  // namespace fsdplan
