#include <algorithm>

#include "fsdplan/wrap.hpp"
#include "wrap/recursion.hpp"
#include "wrap/resolved.hpp"

namespace fsdplan {
namespace {

/// Passes questions on and remembers those about one module.
class Watched final : public RecursivePolicy {
public:
    struct Answers {
        std::optional<std::int64_t> numel;      // asked whether to enter
        std::optional<std::int64_t> remainder;  // asked whether to wrap
        bool entered = false;
        bool wrapped = false;
    };

    Watched(std::unique_ptr<RecursivePolicy> policy, ModuleIndex module, Answers& answers)
        : policy_(std::move(policy)), module_(module), answers_(answers) {}

    bool enter(const ModuleTree& tree, ModuleIndex m, std::int64_t numel) const override {
        const bool yes = policy_->enter(tree, m, numel);
        if (m == module_) {
            answers_.numel = numel;
            answers_.entered = answers_.entered || yes;
        }
        return yes;
    }

    bool wrap(const ModuleTree& tree, ModuleIndex m, std::int64_t remainder) const override {
        const bool yes = policy_->wrap(tree, m, remainder);
        if (m == module_) {
            answers_.remainder = remainder;
            answers_.wrapped = answers_.wrapped || yes;
        }
        return yes;
    }

private:
    std::unique_ptr<RecursivePolicy> policy_;
    ModuleIndex module_;
    Answers& answers_;
};

std::string on_recursive_path(const ModuleTree& tree, const PolicySpec& spec, const Resolved& resolved,
                              ModuleIndex m) {
    Watched::Answers answers;
    Policies policies;
    for (std::unique_ptr<RecursivePolicy>& policy : make_policies(tree, spec, std::nullopt)) {
        policies.push_back(std::make_unique<Watched>(std::move(policy), m, answers));
    }
    WrappedModel model(tree, resolved);
    BelowThreshold nothing_asked;
    wrap_recursively(model, policies, nothing_asked);
    if (resolved.options->mixed_precision && !answers.numel) {  // enters everything without asking the policy
        answers.numel = tree.numel[at(m)];
        answers.entered = true;
    }
    if (!answers.numel) {
        return "a module above it was not entered, so that nobody asked";
    }
    const std::string all = std::to_string(*answers.numel);
    if (!answers.remainder) {
        return answers.entered
                   ? "it was entered with " + all + " elements; the root is never asked about wrapping"
                   : "the policy did not enter it with its " + all +
                         " elements, and what is not entered is not wrapped";
    }
    const std::string rest = std::to_string(*answers.remainder) + " of its " + all +
                             " elements were left after the units inside it";
    if (answers.wrapped) {
        return rest + ", and the policy said yes";
    }
    return rest + (resolved.keep_full_precision.matches(tree, m)
                       ? ", and mixed precision gives its class a unit"
                       : ", and the policy said no");
}

}  // namespace

std::string why(const ModuleTree& tree, const PolicySpec& spec, const WrapOptions& options, ModuleIndex m) {
    const Resolved resolved = resolve(tree, options);
    const WrapPlan plan = wrap(tree, spec, options);
    const auto holds = [&](const Unit& unit) {
        return std::ranges::find(unit.modules, m) != unit.modules.end();
    };
    const bool is_unit = std::ranges::any_of(plan.units, holds);
    std::string verdict = is_unit ? "is a unit: " : "is no unit: ";
    if (m == ModuleIndex{} && spec.kind != PolicySpec::Kind::calls) {
        return verdict + "the root is one whatever the policy says";
    }
    if (resolved.ignored(m)) {
        return verdict + "it is ignored";
    }
    switch (spec.kind) {
        case PolicySpec::Kind::none:
            return verdict + "there is no policy, so that the root is the only unit";
        case PolicySpec::Kind::recursive:
            return verdict + on_recursive_path(tree, spec, resolved, m);
        case PolicySpec::Kind::module_classes:
            return verdict + (is_unit ? "its class or a base of it is named"
                                      : "neither its class nor a base of it is named");
        case PolicySpec::Kind::custom:
            return verdict + (is_unit ? "a rule says so" : "no rule says so");
        case PolicySpec::Kind::calls:
        case PolicySpec::Kind::manual:
            return verdict + (is_unit ? "a call names it" : "no call names it");
    }
    return verdict;
}

}  // namespace fsdplan
