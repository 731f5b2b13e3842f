#include "frontend/settings_section.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace fsdplan::frontend {
namespace {

constexpr std::string_view automatic = "auto";
constexpr std::string_view filled_in = "auto, as the Trainer fills it";

bool says_auto(const std::optional<json::Value>& value) {
    return value && value->is_string() && value->string() == automatic;
}

/// The file's name of a value's place "file#/pointer".
std::string file_of(const json::Value& value) {
    const std::string where = value.where();
    return where.substr(0, where.find('#'));
}

}  // namespace

std::string quoted_alternatives(std::span<const std::string_view> names) {
    std::string out;
    for (std::size_t i = 0; i < names.size(); ++i) {
        out += std::string(i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + json::quote(names[i]);
    }
    return out;
}

SettingsSection::SettingsSection(std::optional<json::Value> table, std::string prefix, std::string whose,
                                 FrontendPlan& out)
    : table_(table && table->is_null() ? std::nullopt : table),
      prefix_(std::move(prefix)),
      whose_(std::move(whose)),
      out_(out) {
    if (table_ && !table_->is_object()) {
        table_->fail("settings by name");
    }
}

bool SettingsSection::boolean(std::string_view key, bool usual, std::optional<bool> filled) {
    const std::optional<json::Value> given = find(key, filled.has_value());
    const bool value = !given ? usual : filled && says_auto(given) ? *filled : given->boolean();
    add(key, value ? "true" : "false", source(given));
    return value;
}

std::int64_t SettingsSection::integer(std::string_view key, std::int64_t usual, std::int64_t least,
                                      std::int64_t most, std::optional<std::int64_t> filled) {
    const std::optional<json::Value> given = find(key, filled.has_value());
    std::int64_t value = usual;
    if (given && filled && says_auto(given)) {
        value = *filled;
    } else if (given && given->type() == json::Type::real && given->number() == std::trunc(given->number()) &&
               std::abs(given->number()) <= static_cast<double>(largest_total)) {
        value = static_cast<std::int64_t>(given->number());
        if (value < least || value > most) {
            given->fail(fmt::format("an integer from {} to {}", least, most));
        }
    } else if (given) {
        value = given->integer(least, most);
    }
    add(key, std::to_string(value), source(given));
    return value;
}

double SettingsSection::number(std::string_view key, double usual, std::optional<double> filled) {
    const std::optional<json::Value> given = find(key, filled.has_value());
    const double value = !given ? usual : filled && says_auto(given) ? *filled : given->number();
    if (given && value < 0) {
        given->fail("a number that is not negative");
    }
    add(key, fmt::format("{}", value), source(given));
    return value;
}

std::string SettingsSection::word(std::string_view key, std::string_view usual,
                                  std::initializer_list<std::string_view> allowed) {
    const std::optional<json::Value> given = find(key, false);
    std::string value(given ? given->string() : usual);
    if (given && allowed.size() > 0 && std::ranges::find(allowed, value) == allowed.end()) {
        given->fail(quoted_alternatives(allowed));
    }
    add(key, value, source(given));
    return value;
}

std::optional<json::Value> SettingsSection::raw(std::string_view key) {
    return find(key, false);
}

bool SettingsSection::is_auto(std::string_view key) const {
    return table_ && says_auto(table_->find(key));
}

void SettingsSection::skip(std::span<const std::string_view> keys) {
    known_.insert(known_.end(), keys.begin(), keys.end());
}

void SettingsSection::note(std::string_view key, std::string_view text) {
    out_.notes.push_back(fmt::format("{} {}", place_of(key), text));
}

void SettingsSection::refuse(std::string_view key, std::string_view text) const {
    throw Error(ErrorKind::input, place_of(key), std::string(text));
}

void SettingsSection::note_unknown(std::string_view fate) {
    for (const json::Value& value : unknown()) {
        out_.notes.push_back(fmt::format("{} is no key that is known and {}{}", value.where(), fate,
                                         did_you_mean(value.key(), known_)));
    }
}

void SettingsSection::refuse_unknown() const {
    for (const json::Value& value : unknown()) {
        throw Error(ErrorKind::input, value.where(), "unknown key" + did_you_mean(value.key(), known_));
    }
}

std::optional<json::Value> SettingsSection::find(std::string_view key, bool filled) {
    known_.emplace_back(key);
    const std::optional<json::Value> given = table_ ? table_->given(key) : std::nullopt;
    return says_auto(given) && auto_is_usual_ && !filled ? std::nullopt : given;
}

std::string SettingsSection::place_of(std::string_view key) const {
    const std::optional<json::Value> given = table_ ? table_->find(key) : std::nullopt;
    return given ? given->where() : prefix_ + std::string(key);
}

void SettingsSection::add(std::string_view key, std::string value, std::string from) {
    out_.settings.push_back({prefix_ + std::string(key), std::move(value), std::move(from)});
}

std::string SettingsSection::source(const std::optional<json::Value>& given) const {
    return !given ? whose_ : says_auto(given) ? std::string(filled_in) : file_of(*given);
}

std::vector<json::Value> SettingsSection::unknown() const {
    std::vector<json::Value> out;
    if (table_) {
        for (const json::Value member : table_->members()) {
            if (std::ranges::find(known_, member.key()) == known_.end()) {
                out.push_back(member);
            }
        }
    }
    return out;
}

}  // namespace fsdplan::frontend
