#include "frontend/python_value.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace fsdplan {
namespace {

// repr() of a float: the shortest digits that read back, never without a point or an exponent.
std::string float_text(double value) {
    if (std::isnan(value)) {
        return "nan";
    }
    if (std::isinf(value)) {
        return value > 0 ? "inf" : "-inf";
    }
    std::array<char, 64> digits{};
    const double size = std::abs(value);
    const bool plain = size == 0.0 || (size >= 1e-4 && size < 1e16);
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                   plain ? std::chars_format::fixed : std::chars_format::scientific);
    std::string text(digits.data(), end.ptr);
    return plain && text.find('.') == std::string::npos ? text + ".0" : text;
}

std::string list_text(const std::vector<std::string>& list) {
    std::string out = "[";
    for (const std::string& item : list) {
        out += (out.size() == 1 ? "'" : ", '") + item + "'";
    }
    return out + "]";
}

std::string dict_text(const std::map<std::string, std::string>& dict) {
    std::string out = "{";
    for (const auto& [key, value] : dict) {
        out += (out.size() == 1 ? "'" : ", '") + key + "': '" + value + "'";
    }
    return out + "}";
}

struct Shown {
    std::string operator()(std::monostate /*none*/) const { return "None"; }
    std::string operator()(bool value) const { return value ? "True" : "False"; }
    std::string operator()(std::int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return float_text(value); }
    std::string operator()(const std::string& value) const { return value; }
    std::string operator()(const std::vector<std::string>& value) const { return list_text(value); }
    std::string operator()(const std::map<std::string, std::string>& value) const { return dict_text(value); }
};

}  // namespace

std::string python_str(const PythonValue& value) {
    return std::visit(Shown{}, value);
}

namespace frontend {

void refuse(FrontendRule rule, std::string_view error_type, std::string subject, std::string message) {
    throw Refused{{.rule = rule,
                   .error_type = std::string(error_type),
                   .subject = std::move(subject),
                   .message = std::move(message)}};
}

PythonValue python_value(const json::Value& value) {
    switch (value.type()) {
        case json::Type::boolean:
            return value.boolean();
        case json::Type::integer:
            return value.integer();
        case json::Type::real:
            return value.number();
        case json::Type::string:
            return std::string(value.string());
        case json::Type::array:
            return value.strings();
        case json::Type::null:
        case json::Type::object:
            break;
    }
    return {};
}

PythonArguments python_arguments(const json::Value& object) {
    PythonArguments out;
    for (const json::Value member : object.members()) {
        out[std::string(member.key())] = python_value(member);
    }
    return out;
}

std::string lower(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(), [](unsigned char c) {
        return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    });
    return out;
}

std::string upper(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(), [](unsigned char c) {
        return static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    });
    return out;
}

bool truth(const PythonValue& value) {
    return std::visit(
        [](const auto& v) {
            using T = std::decay_t<decltype(v)>;
            if constexpr (std::is_same_v<T, std::monostate>) {
                return false;
            } else if constexpr (std::is_arithmetic_v<T>) {
                return v != T{};
            } else {
                return !v.empty();
            }
        },
        value);
}

bool boolean_word(std::string_view text) {
    constexpr std::array<std::string_view, 6> yes{"y", "yes", "t", "true", "on", "1"};
    constexpr std::array<std::string_view, 6> no{"n", "no", "f", "false", "off", "0"};
    const std::string word = lower(text);
    if (std::ranges::find(yes, word) != yes.end()) {
        return true;
    }
    if (std::ranges::find(no, word) != no.end()) {
        return false;
    }
    refuse(FrontendRule::no_boolean, "ValueError", std::string(text),
           "\"" + std::string(text) + "\" is no truth value; write true or false");
}

std::int64_t integer_word(const std::string& text) {
    std::int64_t value = 0;
    const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) {
        refuse(FrontendRule::no_number, "ValueError", text,
               "\"" + text + "\" is no integer; write all digits, without point or exponent");
    }
    return value;
}

PythonValue value_or_none(const PythonArguments& arguments, std::string_view key) {
    const auto found = arguments.find(key);
    return found == arguments.end() ? PythonValue{} : found->second;
}

}  // namespace frontend
}  // namespace fsdplan
