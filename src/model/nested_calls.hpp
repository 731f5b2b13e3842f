#pragma once

#include <span>
#include <vector>

#include "fsdplan/model.hpp"

namespace fsdplan {

/// One call of a module's forward among the calls of a model, which stand in the order in which they begin.
struct NestedCall {
    ModuleIndex module{};
    std::int32_t parent = -1;  ///< the call that makes it; -1: the root's
    std::int32_t end = 0;      ///< what it calls, directly and below, is (this, end)
    bool leaf = true;
};

/// Calls nest by the module tree: a call lasts until the last call of a module below it, up to the next call
/// of the same module. A module may be called from outside its place in the tree.
std::vector<NestedCall> nested_calls(const ModuleTree& tree, std::span<const ModuleIndex> modules);

}  // namespace fsdplan
