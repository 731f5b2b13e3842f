#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.hpp"

// Recorded and own lists as lines of text, which are then compared.
namespace fsdplan {

/// Words joined by blanks.
std::string joined(const std::vector<std::string>& words);
std::string joined(std::span<const std::int64_t> numbers);
/// The elements of an array, as word_of() has them.
std::string joined(const json::Value& list);

/// A string without its quotes, or another value as it would be shown.
std::string word_of(const json::Value& value);

/// A value as JSON on one line, objects and arrays in full.
std::string json_text(const json::Value& value);

}  // namespace fsdplan
