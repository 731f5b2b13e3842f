#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdplan::cli {

/// A whole number; throws Error(input) at `option` for anything else.
std::int64_t parse_integer(std::string_view text, std::string_view option);

/// The items of "1,2,4", and of repeated options, in order; throws Error(input) at `option` for an empty one.
std::vector<std::string> parse_list(const std::vector<std::string>& texts, std::string_view option);

}  // namespace fsdplan::cli
