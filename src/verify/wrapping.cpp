#include "verify/wrapping.hpp"

namespace fsdplan {

std::vector<ModuleIndex> blocks_of(const ModuleTree& tree) {
    const ClassSet classes(tree, block_classes(tree));
    std::vector<ModuleIndex> out;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        if (classes.matches(tree, static_cast<ModuleIndex>(m))) {
            out.push_back(static_cast<ModuleIndex>(m));
        }
    }
    return out;
}

void reshard_all_but_last(const ModuleTree& tree, WrapPlan& plan) {
    const std::vector<ModuleIndex> blocks = blocks_of(tree);
    for (Unit& unit : plan.units) {
        if (!unit.path.empty()) {
            const bool is_last = !blocks.empty() && unit.module == blocks.back();
            unit.arguments.emplace_back("reshard_after_forward", is_last ? "false" : "true");
        }
    }
}

}  // namespace fsdplan
