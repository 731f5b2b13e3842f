#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/quantity.hpp"
#include "fsdplan/diff.hpp"
#include "report/text_parts.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t key_columns = 34;
constexpr std::size_t value_columns = 22;
/// What is shown even where it stays the same.
constexpr std::size_t headlines = 6;

std::string shown_number(std::string_view key, std::int64_t value) {
    const std::string sign = value < 0 ? "-" : "";
    const std::int64_t size = std::abs(std::max(value, -std::numeric_limits<std::int64_t>::max()));
    if (key.ends_with("bytes")) {
        return sign + show_bytes(size);
    }
    return sign + (key.ends_with("ns") ? show_duration(size) : show_integer(size));
}

std::string shown(std::string_view key, const DiffValue& value) {
    if (const auto* whole = std::get_if<std::int64_t>(&value)) {
        return shown_number(key, *whole);
    }
    if (const auto* real = std::get_if<double>(&value)) {
        return fmt::format("{:.6g}", *real);
    }
    if (const auto* truth = std::get_if<bool>(&value)) {
        return *truth ? "yes" : "no";
    }
    const auto* text = std::get_if<std::string>(&value);
    return text == nullptr ? "-" : *text;
}

/// "+1.2 GiB (+3.4 %)"
std::string change(const DiffRow& row) {
    if (!row.is_number()) {
        return "";
    }
    const double difference = row.difference();
    const std::string size = row.is_whole() ? shown_number(row.key, std::llround(std::abs(difference)))
                                            : fmt::format("{:.6g}", std::abs(difference));
    const auto percent = row.percent();
    return (difference < 0 ? "-" : "+") + size + (percent ? fmt::format(" ({:+.1f} %)", *percent) : "");
}

std::string line(const DiffRow& row) {
    const std::string before = shown(row.key, row.before);
    const std::string key = row.key.size() > key_columns ? row.key + "\n" + std::string(key_columns + 2, ' ')
                                                         : fmt::format("{:<{}}", row.key, key_columns);
    if (!row.changed()) {
        return fmt::format("  {}  {}, as before\n", key, before);
    }
    const std::string after = shown(row.key, row.after);
    if (std::max(before.size(), after.size()) > value_columns) {
        return fmt::format("  {}  {}\n{:>{}}  {}", key, before, "->", key_columns + 2, after);
    }
    return fmt::format("  {}  {:<{}}  {:<{}}  {}", key, before, value_columns, after, value_columns,
                       change(row));
}

/// Without the blanks that the last column leaves where it is empty.
std::string trimmed(std::string text) {
    text.erase(text.find_last_not_of(" \n") + 1);
    return text + "\n";
}

}  // namespace

std::string text_report(const Diff& diff) {
    std::string text = diff.same() ? "the same\n" : "";
    if (!diff.settings.empty()) {
        text += "Settings that differ:\n";
        for (const DiffRow& row : diff.settings) {
            text += trimmed(line(row));
        }
    } else if (!diff.same()) {
        text += "All settings are the same.\n";
    }
    std::string results;
    std::int64_t unchanged = 0;
    for (std::size_t i = 0; i < diff.results.size(); ++i) {
        if (diff.results[i].changed() || (i < headlines && !diff.same())) {
            results += trimmed(line(diff.results[i]));
        } else {
            ++unchanged;
        }
    }
    if (!results.empty()) {
        text += "\nResults:\n" + results;
        text += unchanged > 0 ? fmt::format("  {} more are as before\n", unchanged) : std::string();
    }
    for (const std::string& note : diff.notes) {
        text += wrapped("note: " + note, 6) + "\n";
    }
    return text;
}

}  // namespace fsdplan
