#include "checkpoint/stored/optimizer_keys.hpp"

#include <algorithm>
#include <set>

namespace fsdplan {
namespace {

struct Before {
    bool operator()(const KeyPath& a, const KeyPath& b) const {
        return std::ranges::lexicographical_compare(a, b);
    }
};

/// Dicts that hold an optimizer, nested as optimizer.state_dict() has it or flattened.
struct Optimizers {
    std::set<KeyPath, Before> nested;
    std::set<KeyPath, Before> flattened;
};

Optimizers optimizers_of(std::span<const KeyPath> paths) {
    Optimizers out;
    for (const KeyPath& path : paths) {
        for (std::size_t i = 0; i < path.size(); ++i) {
            const auto key = path.begin() + static_cast<std::ptrdiff_t>(i);
            if (*key == "param_groups") {
                out.nested.emplace(path.begin(), key);
            } else if (key->starts_with("param_groups.")) {
                out.flattened.emplace(path.begin(), key);
            }
        }
    }
    return out;
}

bool is_number(std::string_view key) {
    return !key.empty() && key.find_first_not_of("0123456789") == std::string_view::npos;
}

OptimizerKeys keys_of(const KeyPath& path, const Optimizers& optimizers) {
    for (std::size_t i = 0; i < path.size(); ++i) {
        const auto key = path.begin() + static_cast<std::ptrdiff_t>(i);
        const KeyPath before(path.begin(), key);
        if (*key == "state" && i + 2 < path.size() && optimizers.nested.contains(before)) {
            return is_number(path[i + 1]) ? OptimizerKeys::by_position : OptimizerKeys::by_name;
        }
        if (key->starts_with("state.") && optimizers.flattened.contains(before)) {
            return OptimizerKeys::by_flattened_name;
        }
    }
    return OptimizerKeys::none;
}

}  // namespace

OptimizerLayout find_optimizer(std::span<const KeyPath> paths) {
    const Optimizers optimizers = optimizers_of(paths);
    OptimizerLayout out;
    out.is_state.reserve(paths.size());
    for (const KeyPath& path : paths) {
        const OptimizerKeys keys = keys_of(path, optimizers);
        out.is_state.push_back(keys != OptimizerKeys::none);
        out.keys = std::max(out.keys, keys);
    }
    return out;
}

}  // namespace fsdplan
