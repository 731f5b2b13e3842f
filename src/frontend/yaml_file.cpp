#include "frontend/yaml_file.hpp"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <regex>

#include "base/file.hpp"

namespace fsdplan::frontend {
namespace {

constexpr std::uintmax_t largest_file = 1U << 20U;

bool any_of(std::string_view text, std::initializer_list<std::string_view> words) {
    return std::ranges::find(words, text) != words.end();
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
    static const std::regex integer("[-+]?(0|[1-9][0-9_]*)");
    static const std::regex real(R"([-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?)");
    std::string digits = text;
    std::erase(digits, '_');
    const char* begin = digits.data() + (digits.starts_with('+') ? 1 : 0);
    const char* end = digits.data() + digits.size();
    if (std::int64_t number = 0; text.size() < 64 && std::regex_match(text, integer) &&
                                 std::from_chars(begin, end, number).ec == std::errc{}) {
        return number;
    }
    if (double number = 0; text.size() < 64 && std::regex_match(text, real) &&
                           std::from_chars(begin, end, number).ec == std::errc{}) {
        return number;
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

}  // namespace

std::map<std::string, PythonArguments, std::less<>> read_yaml(const std::string& file) {
    try {
        const YAML::Node root = YAML::Load(read_file(file, largest_file));
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

}  // namespace fsdplan::frontend
