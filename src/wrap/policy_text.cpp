#include "wrap/policy_text.hpp"

#include <charconv>

#include "fsdplan/base.hpp"

namespace fsdplan {

double parse_number(std::string_view text) {
    std::string digits;
    for (const char c : text) {
        if (c != '_') {
            digits += c;
        }
    }
    double scale = 1.0;
    if (!digits.empty()) {
        switch (digits.back()) {
            case 'k':
            case 'K':
                scale = 1e3;
                break;
            case 'M':
                scale = 1e6;
                break;
            case 'G':
            case 'B':
                scale = 1e9;
                break;
            default:
                break;
        }
    }
    const std::size_t length = digits.size() - (scale == 1.0 ? 0 : 1);
    double value = 0.0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + length, value);
    if (error != std::errc() || end != digits.data() + length || !(value >= 0.0) || value > 1e18) {
        throw Error(
            ErrorKind::input, "--policy",
            "expected a number of parameters such as 100M, 2e8 or 1_000, found \"" + std::string(text) + '"');
    }
    return value * scale;
}

std::vector<std::string> split_list(std::string_view text) {
    std::vector<std::string> parts;
    while (true) {
        const std::size_t comma = text.find(',');
        parts.emplace_back(text.substr(0, comma));
        if (parts.back().empty()) {
            throw Error(ErrorKind::input, "--policy", "expected names separated by single commas");
        }
        if (comma == std::string_view::npos) {
            return parts;
        }
        text.remove_prefix(comma + 1);
    }
}

}  // namespace fsdplan
