#pragma once

#include <string_view>

namespace fsdplan::cli {

/// "0.1.0"
std::string_view version();

/// Version, the PyTorch whose rules are followed, and which optional components are in.
void print_version();

}  // namespace fsdplan::cli
