#include "model/nested_calls.hpp"

#include <algorithm>

namespace fsdplan {

std::vector<NestedCall> nested_calls(const ModuleTree& tree, std::span<const ModuleIndex> modules) {
    std::vector<NestedCall> calls(modules.size());
    std::vector<std::int32_t> latest(tree.size(), -1);  // call of each module
    for (std::size_t i = 0; i < modules.size(); ++i) {
        calls[i] = {.module = modules[i], .end = static_cast<std::int32_t>(i) + 1};
        latest[at(modules[i])] = static_cast<std::int32_t>(i);
        for (std::int32_t row = tree.parent[at(modules[i])]; row >= 0;
             row = tree.parent[static_cast<std::size_t>(row)]) {
            const std::int32_t open = latest[static_cast<std::size_t>(row)];
            if (open >= 0) {
                calls[static_cast<std::size_t>(open)].end = static_cast<std::int32_t>(i) + 1;
            }
        }
    }
    std::vector<std::int32_t> around;
    for (std::size_t i = 0; i < calls.size(); ++i) {
        while (!around.empty() &&
               calls[static_cast<std::size_t>(around.back())].end <= static_cast<std::int32_t>(i)) {
            around.pop_back();
        }
        if (!around.empty()) {
            NestedCall& parent = calls[static_cast<std::size_t>(around.back())];
            calls[i].parent = around.back();
            calls[i].end = std::min(calls[i].end, parent.end);
            parent.leaf = false;
        }
        around.push_back(static_cast<std::int32_t>(i));
    }
    return calls;
}

}  // namespace fsdplan
