#include "wrap/recursion.hpp"

#include <algorithm>

namespace fsdplan {
namespace {

class Recursion {
public:
    Recursion(WrappedModel& model, const Policies& policies, BelowThreshold& below)
        : model_(model), tree_(model.tree()), policies_(policies), below_(below) {
        quiet_version_.assign(tree_.size(), 0);
    }

    /// Returns how many elements were wrapped in the subtree.
    std::int64_t visit(ModuleIndex m, ModuleIndex parent, std::int32_t slot) {
        // A visit that constructed nothing constructs nothing again while nothing changes: chains of shared
        // modules would otherwise take a visit for each of their paths.
        if (quiet_version_[at(m)] == model_.version() + 1) {
            return 0;
        }
        const std::uint32_t version = model_.version();
        const std::int64_t wrapped = visit_anew(m, parent, slot);
        if (model_.version() == version) {
            quiet_version_[at(m)] = version + 1;
        }
        return wrapped;
    }

private:
    std::int64_t visit_anew(ModuleIndex m, ModuleIndex parent, std::int32_t slot) {
        if (tree_.has_several_parents && model_.has_unit_below(m)) {
            const std::string path = tree_.path(m);
            model_.report(
                {.rule = WrapRule::shared_module_wrapped_inside,
                 .severity = Severity::error,
                 .error_type = "AssertionError",
                 .unit = path,
                 .message = "the module \"" + path +
                            "\" is shared and something inside it is a unit already when it is met again; "
                            "wrap the shared module as a whole or not at all"});
            model_.stop();
            return 0;
        }
        if (model_.stop_at_uninitialized(m, "ValueError")) {
            return 0;
        }
        const std::int64_t numel = model_.numel(m);
        below_.see(numel);
        if (!enters(m, numel)) {
            return 0;
        }
        const std::int64_t wrapped_below = visit_children(m);
        if (model_.stopped()) {
            return 0;
        }
        const std::int64_t remainder = numel - wrapped_below;
        if (slot == WrappedModel::root_slot) {
            return wrapped_below;
        }
        below_.see(remainder);
        if (!wraps(m, remainder)) {
            return wrapped_below;
        }
        WrappedModel::Request request{.module = m, .parent = parent, .slot = slot};
        if (model_.resolved().keep_full_precision.matches(tree_, m)) {
            request.arguments.emplace_back("mixed_precision", "null");
        }
        model_.construct(request);
        return numel;
    }

    std::int64_t visit_children(ModuleIndex m) {
        std::int64_t wrapped = 0;
        const std::int32_t begin = tree_.child_begin[at(m)];
        const std::span<const ModuleIndex> children = tree_.children(m);
        for (std::size_t i = 0; i < children.size() && !model_.stopped(); ++i) {
            const ModuleIndex c = children[i];
            const std::span<const ModuleIndex> earlier = children.first(i);
            const bool listed_before =
                tree_.has_shared_modules && std::ranges::find(earlier, c) != earlier.end();
            if (!listed_before && !model_.resolved().ignored(c)) {
                wrapped += visit(c, m, begin + static_cast<std::int32_t>(i));
            }
        }
        return wrapped;
    }

    // Mixed precision or-s a class test to the policy that says yes to every recursion.
    bool enters(ModuleIndex m, std::int64_t numel) const {
        return model_.resolved().options->mixed_precision ||
               std::ranges::any_of(policies_, [&](const auto& p) { return p->enter(tree_, m, numel); });
    }

    bool wraps(ModuleIndex m, std::int64_t remainder) const {
        return std::ranges::any_of(policies_, [&](const auto& p) { return p->wrap(tree_, m, remainder); }) ||
               model_.resolved().keep_full_precision.matches(tree_, m);
    }

    WrappedModel& model_;
    const ModuleTree& tree_;
    const Policies& policies_;
    BelowThreshold& below_;
    std::vector<std::uint32_t> quiet_version_;  // version + 1 of the last visit without effect; 0 = none
};

}  // namespace

Policies make_policies(const ModuleTree& tree, const PolicySpec& spec,
                       std::optional<std::int64_t> min_num_params) {
    Policies out;
    for (PolicySpec::Member member : spec.members) {
        const auto known = builtin::policies();
        const auto info = std::ranges::find(known, member.name, &PolicyInfo::name);
        FSDPLAN_ASSERT(info != known.end(), "a spec's members are registered policies");
        if (min_num_params && member.name == "size") {
            member.min_num_params = static_cast<double>(*min_num_params);
        }
        out.push_back((*info)->make({.tree = tree, .member = member}));
    }
    return out;
}

void wrap_recursively(WrappedModel& model, const Policies& policies, BelowThreshold& below) {
    Recursion(model, policies, below).visit(ModuleIndex{}, ModuleIndex{}, WrappedModel::root_slot);
}

}  // namespace fsdplan
