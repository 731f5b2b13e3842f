#include "frontend/yaml_file.hpp"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/json.hpp"
#include "frontend/regular_expression.hpp"

namespace fsdplan::frontend {
namespace {

bool any_of(std::string_view text, std::initializer_list<std::string_view> words) {
    return std::ranges::find(words, text) != words.end();
}

// The patterns of PyYAML's resolver, but for those of base 60, of infinity and of no number.
std::optional<PythonValue> number_in(const std::string& text) {
    using Base = int;
    static const std::array<std::pair<RegularExpression, Base>, 4> integers{{
        {RegularExpression("[-+]?0b[0-1_]+", "yaml"), 2},
        {RegularExpression("[-+]?0[0-7_]+", "yaml"), 8},
        {RegularExpression("[-+]?(0|[1-9][0-9_]*)", "yaml"), 10},
        {RegularExpression("[-+]?0x[0-9a-fA-F_]+", "yaml"), 16},
    }};
    static const RegularExpression real(
        R"([-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9][0-9_]*([eE][-+][0-9]+)?)", "yaml");
    std::string digits = text;
    std::erase(digits, '_');
    std::erase(digits, '+');
    for (const auto& [pattern, base] : integers) {
        if (pattern.matches_all(text)) {
            if (base == 2 || base == 16) {
                digits.erase(digits.find('0'), 2);
            }
            std::int64_t value = 0;
            const char* end = digits.data() + digits.size();
            const bool fits = std::from_chars(digits.data(), end, value, base).ec == std::errc{};
            return fits ? std::optional<PythonValue>(value) : std::nullopt;
        }
    }
    const char* end = digits.data() + digits.size();
    double value = 0;
    if (real.matches_all(text) && std::from_chars(digits.data(), end, value).ec == std::errc{}) {
        return value;
    }
    return std::nullopt;
}

// YAML 1.1 as PyYAML resolves it: 1e6 is text, 1.0e+6 a number, yes a bool.
PythonValue scalar(const YAML::Node& node) {
    const std::string& text = node.Scalar();
    if (node.Tag() == "!") {
        return text;  // quoted
    }
    if (any_of(text, {"", "~", "null", "Null", "NULL"})) {
        return {};
    }
    if (any_of(text, {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})) {
        return true;
    }
    if (any_of(text, {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})) {
        return false;
    }
    if (const std::optional<PythonValue> number = number_in(text)) {
        return *number;
    }
    return text;
}

PythonValue value_of(const YAML::Node& node) {
    if (!node.IsSequence()) {
        return node.IsScalar() ? scalar(node) : PythonValue{};
    }
    std::vector<std::string> list;
    for (const YAML::Node& item : node) {
        list.push_back(item.IsScalar() ? item.Scalar() : std::string());
    }
    return list;
}

PythonArguments section_of(const YAML::Node& map) {
    PythonArguments out;
    for (const auto& entry : map) {
        if (entry.first.IsScalar() && !entry.second.IsMap()) {
            out[entry.first.Scalar()] = value_of(entry.second);
        }
    }
    return out;
}

std::string json_list(const std::vector<std::string>& items) {
    std::string out;
    for (const std::string& item : items) {
        out += (out.empty() ? "" : ",") + json::quote(item);
    }
    return "[" + out + "]";
}

std::string json_of(const PythonValue& value) {
    if (const auto* flag = std::get_if<bool>(&value)) {
        return *flag ? "true" : "false";
    }
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
        return std::to_string(*integer);
    }
    if (const auto* real = std::get_if<double>(&value)) {
        return fmt::format("{:e}", *real);  // with its exponent JSON too reads it as a real number
    }
    if (const auto* text = std::get_if<std::string>(&value)) {
        return json::quote(*text);
    }
    const auto* list = std::get_if<std::vector<std::string>>(&value);
    return list != nullptr ? json_list(*list) : "null";
}

}  // namespace

std::map<std::string, PythonArguments, std::less<>> read_yaml(const std::string& text,
                                                              const std::string& file) {
    try {
        const YAML::Node root = YAML::Load(text);
        if (!root.IsMap()) {
            throw Error(ErrorKind::input, file, "expected YAML with settings by name");
        }
        std::map<std::string, PythonArguments, std::less<>> out{{"", section_of(root)}};
        for (const auto& entry : root) {
            if (entry.first.IsScalar() && entry.second.IsMap()) {
                out[entry.first.Scalar()] = section_of(entry.second);
            }
        }
        return out;
    } catch (const YAML::Exception& error) {
        throw Error(ErrorKind::input, file + ":" + std::to_string(error.mark.line + 1),
                    "is no YAML: " + error.msg);
    }
}

std::string yaml_as_json(const std::string& text, const std::string& file) {
    std::string out;
    const auto add = [](std::string& members, const std::string& key, const std::string& value) {
        members += (members.empty() ? "" : ",") + json::quote(key) + ":" + value;
    };
    for (const auto& [name, section] : read_yaml(text, file)) {
        std::string members;
        for (const auto& [key, value] : section) {
            add(name.empty() ? out : members, key, json_of(value));
        }
        if (!name.empty()) {
            add(out, name, "{" + members + "}");
        }
    }
    return "{" + out + "}";
}

}  // namespace fsdplan::frontend
