#pragma once

#include <string>
#include <vector>

namespace fsdplan {

/// SHA-256, in hexadecimal, of the lines joined by one newline (none at the end).
std::string sha256_of_lines(const std::vector<std::string>& lines);

}  // namespace fsdplan
