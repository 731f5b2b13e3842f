#include "frontend/accelerate_checkpoints.hpp"

#include <algorithm>

#include "wrap/flat_parameter.hpp"
#include "wrap/recursion.hpp"

namespace fsdplan::frontend {
namespace {

class ShardedModel {
public:
    ShardedModel(const ModuleTree& tree, const PolicySpec& policy, const WrapOptions& options)
        : tree_(tree), policies_(make_policies(tree, policy, std::nullopt)) {
        flat_.assign(tree.size(), 0);
        local_.assign(tree.tensors.size(), 0);
        counted_.assign(tree.tensors.size(), 0);
        chosen_.assign(tree.size(), 0);
        visited_.assign(tree.size(), 0);
        for (const Unit& unit : wrap_fsdp1(tree, policy, options).units) {
            options.use_orig_params ? spread(unit, options) : gather(unit);
        }
    }

    std::vector<std::string> choose() {
        visit(ModuleIndex{});
        std::vector<std::string> out;
        for (std::size_t m = 0; m < tree_.size(); ++m) {
            if (chosen_[m] != 0) {
                out.push_back(tree_.path(ModuleIndex{static_cast<std::int32_t>(m)}));
            }
        }
        return out;
    }

private:
    // The flat parameter hangs on the unit's module.
    void gather(const Unit& unit) { flat_[at(unit.module)] += unit.shard_numel; }

    // The original parameters stay where they are, as views of what this rank has of them.
    void spread(const Unit& unit, const WrapOptions& options) {
        std::vector<std::int64_t> numels;
        for (const TensorIndex t : unit.parameters) {
            numels.push_back(tree_.tensors[at(t)].numel);
        }
        if (numels.empty()) {
            return;
        }
        const DType stored = tree_.tensors[at(unit.parameters.front())].dtype;
        const FlatLayout layout =
            flat_layout(numels, true, options.param_dtype.value_or(stored), options.world_size);
        for (std::size_t i = 0; i < numels.size(); ++i) {
            local_[at(unit.parameters[i])] =
                local_numel(layout.offsets[i], numels[i], unit.shard_numel, options.rank);
        }
    }

    /// Elements of this rank below m; a tied parameter counts once.
    std::int64_t numel(ModuleIndex m) {
        ++stamp_;
        std::int64_t sum = 0;
        for (auto r = at(m); r < static_cast<std::size_t>(tree_.subtree_end[at(m)]); ++r) {
            sum += flat_[r];
            for (const TensorIndex t : tree_.parameters(ModuleIndex{static_cast<std::int32_t>(r)})) {
                if (counted_[at(t)] != stamp_) {
                    counted_[at(t)] = stamp_;
                    sum += local_[at(t)];
                }
            }
        }
        return sum;
    }

    bool enters(ModuleIndex m, std::int64_t size) const {
        return std::ranges::any_of(policies_, [&](const auto& p) { return p->enter(tree_, m, size); });
    }
    bool wraps(ModuleIndex m, std::int64_t size) const {
        return std::ranges::any_of(policies_, [&](const auto& p) { return p->wrap(tree_, m, size); });
    }

    /// Elements that were wrapped in the subtree.
    std::int64_t visit(ModuleIndex m) {
        const std::int64_t size = numel(m);
        if (visited_[at(m)]++ != 0 || !enters(m, size)) {
            return 0;
        }
        std::int64_t below = 0;
        for (const ModuleIndex c : tree_.children(m)) {
            below += visit(c);
        }
        if (!wraps(m, size - below)) {
            return below;
        }
        chosen_[at(m)] = 1;
        return size;
    }

    const ModuleTree& tree_;
    Policies policies_;
    std::vector<std::int64_t> flat_;   // per row: this rank's piece of the flat parameter that hangs there
    std::vector<std::int64_t> local_;  // per tensor: what this rank has of an original parameter
    std::vector<std::int32_t> counted_;
    std::int32_t stamp_ = 0;
    std::vector<char> chosen_;
    std::vector<char> visited_;
};

}  // namespace

std::vector<std::string> checkpointed_after_sharding(const ModuleTree& tree, const PolicySpec& policy,
                                                     const WrapOptions& options) {
    if (policy.kind == PolicySpec::Kind::none) {  // then every module is wrapped
        std::vector<std::string> out;
        for (std::size_t m = 0; m < tree.size(); ++m) {
            out.push_back(tree.path(ModuleIndex{static_cast<std::int32_t>(m)}));
        }
        return out;
    }
    return ShardedModel(tree, policy, options).choose();
}

}  // namespace fsdplan::frontend
