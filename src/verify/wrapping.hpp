#pragma once

#include <vector>

#include "fsdplan/model.hpp"
#include "fsdplan/wrap.hpp"

namespace fsdplan {

/// The repeated blocks of a model, in order.
std::vector<ModuleIndex> blocks_of(const ModuleTree& tree);

/// As torchtitan calls fully_shard: reshard_after_forward is true for every unit but the last block's and the
/// root's, which keeps the default.
void reshard_all_but_last(const ModuleTree& tree, WrapPlan& plan);

}  // namespace fsdplan
