#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fsdplan/model.hpp"

namespace fsdplan {

/// Elements of the distinct parameters in each row's subtree, those of `left_out` tensors (1 per tensor; may
/// be empty) not counted.
std::vector<std::int64_t> subtree_numel(const ModuleTree& tree, std::span<const char> left_out = {});

}  // namespace fsdplan
