#include "verify/traffic.hpp"

#include <algorithm>
#include <array>

namespace fsdplan {
namespace {

struct Word {
    std::string_view word;
    DType dtype;
};

constexpr std::array words{
    Word{"f64", DType::float64},   Word{"f32", DType::float32}, Word{"f16", DType::float16},
    Word{"bf16", DType::bfloat16}, Word{"i64", DType::int64},   Word{"i32", DType::int32},
    Word{"u8", DType::uint8},      Word{"b8", DType::boolean},
};

}  // namespace

DType recorded_dtype(const json::Value& value) {
    const std::string_view word = value.string();
    for (const auto& [name, dtype] : words) {
        if (name == word) {
            return dtype;
        }
    }
    if (const auto dtype = dtype_from_name(word)) {
        return *dtype;
    }
    value.fail("a dtype, such as \"f32\"");
}

std::string recorded_name(DType dtype) {
    for (const auto& [word, d] : words) {
        if (d == dtype) {
            return std::string(word);
        }
    }
    return "torch." + std::string(name(dtype));
}

void compare_lines(const std::string& where, const std::vector<std::string>& expected,
                   const std::vector<std::string>& got, CaseReport& report) {
    const auto differ = std::ranges::mismatch(expected, got);
    if (differ.in1 == expected.end() && differ.in2 == got.end()) {
        return;
    }
    const std::string place = where + " line " + std::to_string(differ.in1 - expected.begin());
    report.compare(place, differ.in1 == expected.end() ? "(nothing more)" : *differ.in1,
                   differ.in2 == got.end() ? "(nothing more)" : *differ.in2);
}

bool setting(const json::Value& settings, std::string_view key, bool otherwise) {
    const auto value = settings.find(key);
    return value ? value->boolean() : otherwise;
}

std::vector<json::Value> unfolded_iterations(const json::Value& file) {
    constexpr std::size_t most = 10'000;
    std::vector<json::Value> out;
    const json::Value rows = file.at("iterations");
    if (rows.size() > most) {
        rows.fail("at most " + std::to_string(most) + " iterations");
    }
    for (const json::Value row : rows.elements()) {
        if (const auto same = row.find("same_as")) {
            out.push_back(
                out[static_cast<std::size_t>(same->integer(0, static_cast<std::int64_t>(out.size()) - 1))]);
        } else {
            out.push_back(row);
        }
    }
    return out;
}

}  // namespace fsdplan
