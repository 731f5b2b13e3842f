#pragma once

#include <string>
#include <string_view>

#include "base/json.hpp"

// Values that files about hardware share. Each throws Error(input) at the value.
namespace fsdplan {

constexpr double giga = 1e9;

double positive(const json::Value& value);
double not_negative(const json::Value& value);
std::string text_or(const json::Value& object, std::string_view key, std::string_view absent);
/// "format" is this one, "version" is 1.
void expect_format(const json::Value& object, std::string_view format);

}  // namespace fsdplan
