#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fsdplan {

/// "100M", "2e8", "1_000", "1.5G" (decimal) as a number of parameters; throws Error(input) at --policy.
double parse_number(std::string_view text);

/// "a,b" as {"a", "b"}; throws Error(input) at --policy when a part is empty.
std::vector<std::string> split_list(std::string_view text);

}  // namespace fsdplan
