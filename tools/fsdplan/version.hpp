#pragma once

namespace fsdplan::cli {

/// Version, the PyTorch whose rules are followed, and which optional components are in.
void print_version();

}  // namespace fsdplan::cli
