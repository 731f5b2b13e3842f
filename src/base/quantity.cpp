#include "base/quantity.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace fsdplan {
namespace {

constexpr std::array<std::pair<std::string_view, double>, 9> units{{{"b", 1.0},
                                                                    {"kib", 0x1p10},
                                                                    {"mib", 0x1p20},
                                                                    {"gib", 0x1p30},
                                                                    {"tib", 0x1p40},
                                                                    {"kb", 1e3},
                                                                    {"mb", 1e6},
                                                                    {"gb", 1e9},
                                                                    {"tb", 1e12}}};

std::string lower(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return out;
}

/// Three significant digits, never an exponent.
std::string three_digits(double value) {
    const double size = std::fabs(value);
    const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
    return text.data();
}

struct Step {
    double size;
    std::string_view suffix;
};

std::string in_steps(double value, std::span<const Step> steps) {
    for (const Step& step : steps) {
        if (std::fabs(value) >= step.size * 0.9995) {
            return three_digits(value / step.size) + std::string(step.suffix);
        }
    }
    return three_digits(value / steps.back().size) + std::string(steps.back().suffix);
}

}  // namespace

Bytes parse_bytes(std::string_view text, std::string_view where) {
    const auto refuse = [&](const std::string& why) -> Error {
        return {ErrorKind::input, std::string(where),
                why +
                    "; expected a number with a unit, such as 76GiB or 80GB (KiB, MiB, GiB, TiB, KB, MB, GB, "
                    "TB, B)"};
    };
    double number = 0.0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
    if (error != std::errc{} || !(number >= 0.0)) {
        throw refuse("found \"" + std::string(text) + "\"");
    }
    std::string_view unit(rest, static_cast<std::size_t>(end - rest));
    while (!unit.empty() && unit.front() == ' ') {
        unit.remove_prefix(1);
    }
    if (unit.empty()) {
        throw refuse("\"" + std::string(text) + "\" has no unit");
    }
    for (const auto& [name, size] : units) {
        if (lower(unit) == name) {
            const double bytes = std::floor(number * size);
            if (bytes < 1.0 || bytes > static_cast<double>(largest_total)) {
                throw refuse("\"" + std::string(text) + "\" is " +
                             (bytes < 1.0 ? "less than one byte" : "more than 2^53 bytes"));
            }
            return {static_cast<std::int64_t>(bytes)};
        }
    }
    throw refuse("unknown unit \"" + std::string(unit) + "\" in \"" + std::string(text) + "\"");
}

std::string show_bytes(std::int64_t bytes) {
    if (std::llabs(bytes) < 1024) {
        return std::to_string(bytes) + " B";
    }
    static constexpr std::array<Step, 4> steps{
        {{0x1p40, " TiB"}, {0x1p30, " GiB"}, {0x1p20, " MiB"}, {0x1p10, " KiB"}}};
    return in_steps(static_cast<double>(bytes), steps);
}

std::string show_numel(std::int64_t numel) {
    if (std::llabs(numel) < 1000) {
        return std::to_string(numel);
    }
    static constexpr std::array<Step, 4> steps{{{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}}};
    return in_steps(static_cast<double>(numel), steps);
}

std::string show_duration(std::int64_t ns) {
    if (std::llabs(ns) < 1000) {
        return std::to_string(ns) + " ns";
    }
    static constexpr std::array<Step, 3> steps{{{1e9, " s"}, {1e6, " ms"}, {1e3, " us"}}};
    return in_steps(static_cast<double>(ns), steps);
}

std::string show_integer(std::int64_t value) {
    const std::string digits = std::to_string(value);
    const std::size_t sign = digits.front() == '-' ? 1 : 0;
    std::string out;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i > sign && (digits.size() - i) % 3 == 0) {
            out += ',';
        }
        out += digits[i];
    }
    return out;
}

}  // namespace fsdplan
