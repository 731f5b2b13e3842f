#include "fsdplan/diff.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "base/json.hpp"
#include "base/quantity.hpp"
#include "fsdplan/base.hpp"
#include "report/diff_facts.hpp"

namespace fsdplan {
namespace {

double number(const DiffValue& value) {
    const auto* whole = std::get_if<std::int64_t>(&value);
    return whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
}

bool is_number(const DiffValue& value) {
    return std::holds_alternative<std::int64_t>(value) || std::holds_alternative<double>(value);
}

using Index = std::map<std::string_view, std::size_t>;

Index index_of(const DiffValues& values) {
    Index index;
    for (std::size_t i = 0; i < values.size(); ++i) {
        index.emplace(values[i].first, i);
    }
    return index;
}

/// All keys of either side, those of the first in its order; one that only the second has stands behind the
/// key that it follows there.
std::vector<DiffRow> rows_of(const DiffValues& before, const DiffValues& after) {
    const Index in_before = index_of(before);
    const Index in_after = index_of(after);
    std::vector<std::vector<DiffRow>> behind(before.size() +
                                             1);  // in front of all, then behind each of `before`
    std::size_t place = 0;
    for (const auto& [key, value] : after) {
        const auto known = in_before.find(key);
        if (known != in_before.end()) {
            place = known->second + 1;
        } else {
            behind[place].push_back({key, DiffValue{}, value});
        }
    }
    std::vector<DiffRow> rows = std::move(behind.front());
    for (std::size_t i = 0; i < before.size(); ++i) {
        const auto& [key, value] = before[i];
        const auto other = in_after.find(key);
        rows.push_back({key, value, other == in_after.end() ? DiffValue{} : after[other->second].second});
        std::ranges::move(behind[i + 1], std::back_inserter(rows));
    }
    return rows;
}

/// An assumption says a number as text.
std::string plain_text(const DiffValue& value) {
    const auto* whole = std::get_if<std::int64_t>(&value);
    const auto* text = std::get_if<std::string>(&value);
    return whole != nullptr ? std::to_string(*whole) : text != nullptr ? *text : std::string();
}

/// Rows that changed. What a job says and an assumption or the plan repeats is one row.
std::vector<DiffRow> changed_settings(const DiffValues& before, const DiffValues& after) {
    std::vector<DiffRow> out;
    std::set<std::pair<std::string, std::string>> said;
    for (DiffRow& row : rows_of(before, after)) {
        if (!row.changed()) {
            continue;
        }
        const bool is_new = said.emplace(plain_text(row.before), plain_text(row.after)).second;
        if (is_new || !(row.key.starts_with("assumptions.") || row.key.starts_with("wrap_plan."))) {
            out.push_back(std::move(row));
        }
    }
    return out;
}

void keep_shared(std::vector<DiffRow>& rows) {
    std::erase_if(rows,
                  [](const DiffRow& row) { return row.before == DiffValue{} || row.after == DiffValue{}; });
}

/// A sum that one side lacks is 0 there when the other summands of its kind are known.
void complete_sums(std::vector<DiffRow>& rows) {
    for (const std::string_view kind :
         {"units_by_class.", "collectives.", "memory.", "waits.", "peak.by_category."}) {
        const auto known = [&](DiffValue DiffRow::*side) {
            return std::ranges::any_of(rows, [&](const DiffRow& row) {
                return row.key.starts_with(kind) && row.*side != DiffValue{};
            });
        };
        const bool both = known(&DiffRow::before) && known(&DiffRow::after);
        for (DiffRow& row : rows) {
            if (both && row.key.starts_with(kind)) {
                row.before = row.before == DiffValue{} ? DiffValue(std::int64_t{0}) : row.before;
                row.after = row.after == DiffValue{} ? DiffValue(std::int64_t{0}) : row.after;
            }
        }
    }
}

void note_other(std::string_view what, const std::string& before, const std::string& after,
                std::string_view consequence, std::vector<std::string>& notes) {
    if (before != after && !before.empty() && !after.empty()) {
        notes.push_back(std::string(what) + " differs (" + before + ", " + after +
                        "): " + std::string(consequence));
    }
}

}  // namespace

bool DiffRow::is_number() const {
    return fsdplan::is_number(before) && fsdplan::is_number(after);
}

bool DiffRow::is_whole() const {
    constexpr auto most = static_cast<double>(largest_total);
    return std::holds_alternative<std::int64_t>(before) && std::holds_alternative<std::int64_t>(after) &&
           std::abs(number(before)) <= most && std::abs(number(after)) <= most;
}

double DiffRow::difference() const {
    return number(after) - number(before);  // bytes and nanoseconds of a result are exact in a double
}

std::optional<double> DiffRow::percent() const {
    if (!is_number() || number(before) <= 0.0) {
        return std::nullopt;
    }
    return 100.0 * difference() / number(before);
}

bool Diff::same() const {
    return settings.empty() && std::ranges::none_of(results, &DiffRow::changed);
}

Diff diff_results(std::string_view before, const std::string& before_file, std::string_view after,
                  const std::string& after_file) {
    const json::Document first(before, before_file);
    const json::Document second(after, after_file);
    const ComparedResult a = compared_result(first.root());
    const ComparedResult b = compared_result(second.root());
    Diff out{.settings = changed_settings(a.settings, b.settings),
             .results = rows_of(a.results, b.results),
             .notes = {}};
    complete_sums(out.results);
    if (a.command != b.command) {
        keep_shared(out.settings);
        keep_shared(out.results);
    }
    note_other("the command", a.command, b.command, "what both say is compared", out.notes);
    note_other("the model", a.model, b.model, "they answer different questions", out.notes);
    note_other("the cluster", a.cluster, b.cluster, "they answer different questions", out.notes);
    note_other("the version of fsdplan", a.version, b.version, "a difference may be a mended estimate",
               out.notes);
    for (const ComparedResult* side : {&a, &b}) {
        for (const std::string& note : side->notes) {
            if (std::ranges::find(out.notes, note) == out.notes.end()) {
                out.notes.push_back(note);
            }
        }
    }
    const auto step = std::ranges::find(out.results, "step_ns", &DiffRow::key);
    if (a.step_ns && b.step_ns && step != out.results.end() && step->changed() &&
        a.step_ns->first <= b.step_ns->second && b.step_ns->first <= a.step_ns->second) {
        const auto shown = [](const auto& ends) {
            return show_duration(ends.first) + " to " + show_duration(ends.second);
        };
        out.notes.push_back("the estimates of the step overlap: " + shown(*a.step_ns) + ", and " +
                            shown(*b.step_ns));
    }
    return out;
}

Diff diff_settings(const DiffValues& before, const DiffValues& after) {
    return {.settings = changed_settings(before, after), .results = {}, .notes = {}};
}

DiffInput diff_input(std::string_view json, const std::string& file) {
    const json::Document document(json, file);
    const json::Value root = document.root();
    if (!root.is_object()) {
        root.fail("a result of fsdplan, or settings by name");
    }
    const std::optional<json::Value> format = root.find("format");
    if (!format) {
        return DiffInput::settings;
    }
    constexpr std::string_view ours = "fsdplan.";
    const std::string_view name = format->string();
    if (name == "fsdplan.result" || name == "fsdplan.units") {
        return DiffInput::result;
    }
    if (name.starts_with(ours)) {
        format->fail("\"fsdplan.result\"");
    }
    return DiffInput::settings;
}

DiffValues settings_in_json(std::string_view json, const std::string& file) {
    const json::Document document(json, file);
    DiffValues out;
    flatten(document.root(), "", out);
    return out;
}

}  // namespace fsdplan
