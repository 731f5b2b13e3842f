#include "model/count.hpp"

#include <utility>

namespace fsdplan {
namespace {

constexpr std::int32_t none = -1;

std::int64_t counted(const ModuleTree& tree, std::span<const char> left_out, TensorIndex t) {
    return !left_out.empty() && left_out[at(t)] != 0 ? 0 : tree.tensors[at(t)].numel;
}

// A tree: a tied tensor counts once per subtree. Add it at each owner, take it off at the common
// ancestor of neighbouring owners in pre-order, and the subtree sums come out right.
std::vector<std::int64_t> count_tree(const ModuleTree& tree, std::span<const char> left_out) {
    std::vector<std::int64_t> numel(tree.size(), 0);
    std::vector<std::int32_t> last_owner(tree.tensors.size(), none);
    for (std::size_t m = 0; m < tree.size(); ++m) {
        for (const TensorIndex t : tree.parameters(ModuleIndex{static_cast<std::int32_t>(m)})) {
            const std::int64_t n = counted(tree, left_out, t);
            std::int32_t ancestor = last_owner[at(t)];
            if (ancestor == static_cast<std::int32_t>(m)) {
                continue;  // an alias inside one module
            }
            numel[m] += n;
            if (ancestor != none) {
                while (tree.subtree_end[static_cast<std::size_t>(ancestor)] <= static_cast<std::int32_t>(m)) {
                    ancestor = tree.parent[static_cast<std::size_t>(ancestor)];
                }
                numel[static_cast<std::size_t>(ancestor)] -= n;
            }
            last_owner[at(t)] = static_cast<std::int32_t>(m);
        }
    }
    for (std::size_t m = tree.size(); m-- > 1;) {
        numel[static_cast<std::size_t>(tree.parent[m])] += numel[m];
    }
    return numel;
}

// Modules with several parents: walk each subtree, every module and every tensor once.
std::vector<std::int64_t> count_graph(const ModuleTree& tree, std::span<const char> left_out) {
    std::vector<std::int64_t> numel(tree.size(), 0);
    std::vector<std::int32_t> module_seen(tree.size(), none);
    std::vector<std::int32_t> tensor_seen(tree.tensors.size(), none);
    std::vector<ModuleIndex> stack;
    for (std::int32_t m = 0; m < static_cast<std::int32_t>(tree.size()); ++m) {
        std::int64_t total = 0;
        stack.assign(1, ModuleIndex{m});
        module_seen[static_cast<std::size_t>(m)] = m;
        while (!stack.empty()) {
            const ModuleIndex top = stack.back();
            stack.pop_back();
            for (const TensorIndex t : tree.parameters(top)) {
                if (std::exchange(tensor_seen[at(t)], m) != m) {
                    total += counted(tree, left_out, t);
                }
            }
            for (const ModuleIndex c : tree.children(top)) {
                if (std::exchange(module_seen[at(c)], m) != m) {
                    stack.push_back(c);
                }
            }
        }
        numel[static_cast<std::size_t>(m)] = total;
    }
    return numel;
}

}  // namespace

std::vector<std::int64_t> subtree_numel(const ModuleTree& tree, std::span<const char> left_out) {
    return tree.has_several_parents ? count_graph(tree, left_out) : count_tree(tree, left_out);
}

}  // namespace fsdplan
