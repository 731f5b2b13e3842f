#include "verify/runtime_unread.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

/// By row of the tree.
std::vector<char> modules_that_call(const ModuleTree& tree) {
    std::vector<char> out(tree.size(), 0);
    for (const ModuleIndex m : tree.calls.module) {
        for (std::int32_t p = tree.parent[at(m)]; p >= 0; p = tree.parent[static_cast<std::size_t>(p)]) {
            out[static_cast<std::size_t>(p)] = 1;
        }
    }
    return out;
}

bool holds(const ModuleTree& tree, std::size_t m, TensorIndex t) {
    const auto parameters = tree.parameters(static_cast<ModuleIndex>(m));
    return std::ranges::find(parameters, t) != parameters.end();
}

/// Parameters of the unit that hang in modules that call others, and in no leaf.
std::vector<TensorIndex> candidates_of(const Unit& unit, const ModuleTree& tree,
                                       const std::vector<char>& calls_others) {
    const auto of_leaf = [&](TensorIndex t) {
        for (std::size_t m = 0; m < tree.size(); ++m) {
            if (calls_others[m] == 0 && holds(tree, m, t)) {
                return true;
            }
        }
        return false;
    };
    std::vector<TensorIndex> out;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        if (calls_others[m] == 0) {
            continue;
        }
        for (const TensorIndex t : tree.parameters(static_cast<ModuleIndex>(m))) {
            if (std::ranges::find(unit.parameters, t) != unit.parameters.end() && !of_leaf(t)) {
                out.push_back(t);
            }
        }
    }
    return out;
}

/// -1: never counted.
std::int64_t most_gradients(const json::Value& recording, const std::string& unit) {
    std::int64_t most = -1;
    for (const json::Value iteration : recording.at("iterations").elements()) {
        const auto events = iteration.find("events");
        if (!events) {
            continue;
        }
        for (const json::Value event : events->elements()) {
            const auto grad = event.find("grad");
            if (grad && event.at("u").string() == unit) {
                most = std::max(most, grad->integer());
            }
        }
    }
    return most;
}

}  // namespace

std::vector<TensorIndex> unread_parameters(const json::Value& recording, const ModuleTree& tree,
                                           const WrapPlan& plan) {
    const std::vector<char> calls_others = modules_that_call(tree);
    std::vector<TensorIndex> out;
    for (const Unit& unit : plan.units) {
        const std::vector<TensorIndex> candidates = candidates_of(unit, tree, calls_others);
        if (candidates.empty()) {
            continue;
        }
        const std::int64_t recorded = most_gradients(recording, unit.path);
        const auto trainable = std::ranges::count_if(
            unit.parameters, [&](TensorIndex t) { return tree.tensors[at(t)].requires_grad; });
        if (recorded >= 0 && recorded < trainable) {
            out.insert(out.end(), candidates.begin(), candidates.end());
        }
    }
    return out;
}

}  // namespace fsdplan
