#pragma once

#include <functional>
#include <vector>

#include "planner/search/space.hpp"

namespace fsdplan {

/// Time of one unit's collectives, with what its hooks cost the host.
using UnitCost = std::function<std::int64_t(std::int64_t numel, std::int64_t trainable_numel)>;

/// Patterns from which nothing better can be had in both the sum of all units' costs and the size of the
/// largest unit, by dynamic programming over the folded tree: what a subtree leaves to the units around it is
/// the third thing that counts. From few large units to many small ones; at most `most`.
///
/// These are where a search starts: what a plan really takes, its simulation says.
std::vector<Pattern> pareto_patterns(const Space& space, std::int64_t root_numel, const UnitCost& cost,
                                     std::size_t most);

}  // namespace fsdplan
