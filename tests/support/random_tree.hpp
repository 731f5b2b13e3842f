#pragma once

#include <random>
#include <string>
#include <vector>

#include "fsdplan/model.hpp"
#include "model/blocks.hpp"
#include "model/builder.hpp"

namespace fsdplan::testing {

/// What a random model may have besides modules and parameters.
struct RandomTreeFeatures {
    bool shared_modules = false;
    bool tied_parameters = false;
    int most_rows = 30;
};

/// A random model of lists, sequences, attention and plain modules with parameters of 1 to 40 elements.
class RandomTree {
public:
    RandomTree(unsigned seed, RandomTreeFeatures features)
        : random_(seed), features_(features), builder_("random", "seed " + std::to_string(seed)) {}

    ModelGraph build() {
        const Scope root = builder_.root(plain("Root"));
        grow(root, 4);
        if (builder_.graph().tensors.empty()) {
            root.parameter("w", {7});
        }
        return builder_.finish();
    }

private:
    static ModuleClass plain(const std::string& name) {
        return {"toy." + name, {"torch.nn.modules.module.Module"}};
    }

    int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
    bool chance(int percent) { return below(100) < percent; }

    ModuleClass random_class() {
        switch (below(6)) {
            case 0:
                return classes::module_list();
            case 1:
                return classes::module_dict();
            case 2:
                return classes::sequential();
            case 3:
                return {"torch.nn.modules.activation.MultiheadAttention", {"torch.nn.modules.module.Module"}};
            default:
                return plain("Block");
        }
    }

    void add_parameter(const Scope& scope, const std::string& name) {
        if (features_.tied_parameters && !owners_.empty() && chance(30)) {
            const auto& [owner, theirs] =
                owners_[static_cast<std::size_t>(below(static_cast<int>(owners_.size())))];
            scope.tie(name, owner, theirs);
            return;
        }
        scope.parameter(name, {1 + below(40)});
        owners_.emplace_back(scope, name);
    }

    void grow(const Scope& scope, int depth) {
        const int parts = 1 + below(4);
        for (int i = 0; i < parts; ++i) {
            const std::string name = std::to_string(i);
            if (chance(40) || depth == 0) {
                add_parameter(scope, "p" + name);
            } else if (features_.shared_modules && !finished_.empty() && chance(25)) {
                scope.share("c" + name,
                            finished_[static_cast<std::size_t>(below(static_cast<int>(finished_.size())))]);
            } else if (static_cast<int>(builder_.graph().modules.size()) < features_.most_rows) {
                const Scope child = scope.child("c" + name, random_class());
                grow(child, depth - 1);
                finished_.push_back(child);  // only finished modules are shared: no cycle can come about
            }
        }
    }

    std::mt19937 random_;
    RandomTreeFeatures features_;
    GraphBuilder builder_;
    std::vector<std::pair<Scope, std::string>> owners_;
    std::vector<Scope> finished_;
};

inline ModuleTree random_tree(unsigned seed, RandomTreeFeatures features) {
    return flatten(RandomTree(seed, features).build());
}

}  // namespace fsdplan::testing
