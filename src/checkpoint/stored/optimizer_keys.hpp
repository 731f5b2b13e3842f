#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "fsdplan/stored_checkpoint.hpp"

namespace fsdplan {

/// Keys from the outermost dict to a value.
using KeyPath = std::vector<std::string_view>;

struct OptimizerLayout {
    OptimizerKeys keys = OptimizerKeys::none;
    std::vector<bool> is_state;  ///< per path
};

/// Finds the dicts of optimizers among all values of a checkpoint: those with `state` beside `param_groups`.
OptimizerLayout find_optimizer(std::span<const KeyPath> paths);

}  // namespace fsdplan
