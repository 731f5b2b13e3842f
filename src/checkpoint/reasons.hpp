#pragma once

#include <string>
#include <string_view>

namespace fsdplan {

/// What a code of Compatibility means, in words.
std::string reason_of(std::string_view code);

}  // namespace fsdplan
