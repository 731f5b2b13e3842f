#include "wrap/set_path.hpp"

#include <algorithm>
#include <optional>

namespace fsdplan {
namespace {

constexpr std::size_t most_tensors_named = 12;

/// What the policy says of each module: nothing, or the arguments of its unit.
using Targets = std::vector<std::optional<UnitArguments>>;

struct Selector {
    ClassSet classes;
    std::optional<ModuleIndex> module;

    bool matches(const ModuleTree& tree, ModuleIndex m) const {
        return module ? *module == m : classes.matches(tree, m);
    }
};

Selector make_selector(const ModuleTree& tree, const std::string& text) {
    constexpr std::string_view by_path = "fqn:";
    if (text.starts_with(by_path)) {
        return {.classes = {}, .module = require_module(tree, text.substr(by_path.size()), "policy rules")};
    }
    return {.classes = ClassSet(tree, std::span(&text, 1))};
}

Targets class_targets(const WrappedModel& model, const std::vector<std::string>& names) {
    const ClassSet classes(model.tree(), names);
    Targets targets(model.tree().size());
    for (std::size_t m = 0; m < targets.size(); ++m) {
        const ModuleIndex module{static_cast<std::int32_t>(m)};
        if (!model.resolved().ignored(module) && classes.matches(model.tree(), module)) {
            targets[m].emplace();
        }
    }
    return targets;
}

Targets rule_targets(WrappedModel& model, const std::vector<PolicySpec::Rule>& rules) {
    const ModuleTree& tree = model.tree();
    std::vector<Selector> selectors;
    for (const PolicySpec::Rule& rule : rules) {
        selectors.push_back(make_selector(tree, rule.selector));
    }
    Targets targets(tree.size());
    for (std::size_t m = 0; m < targets.size(); ++m) {
        const ModuleIndex module{static_cast<std::int32_t>(m)};
        if (model.resolved().ignored(module)) {
            continue;
        }
        const auto hit =
            std::ranges::find_if(selectors, [&](const Selector& s) { return s.matches(tree, module); });
        if (hit == selectors.end()) {
            continue;
        }
        const PolicySpec::Rule& rule = rules[static_cast<std::size_t>(hit - selectors.begin())];
        switch (rule.answer) {
            case PolicySpec::Rule::Answer::no:
                break;
            case PolicySpec::Rule::Answer::yes:
                targets[m].emplace();
                break;
            case PolicySpec::Rule::Answer::arguments:
                if (!rule.arguments.empty()) {
                    targets[m] = rule.arguments;
                }
                break;
            case PolicySpec::Rule::Answer::invalid:
                model.report({.rule = WrapRule::custom_policy_value,
                              .severity = Severity::error,
                              .error_type = "ValueError",
                              .unit = tree.path(module),
                              .message = "the rule for \"" + rule.selector +
                                         "\" is neither true, false nor an object of arguments"});
                model.stop();
                return targets;
        }
    }
    return targets;
}

void add_full_precision_targets(const WrappedModel& model, Targets& targets) {
    for (std::size_t m = 0; m < targets.size(); ++m) {
        const ModuleIndex module{static_cast<std::int32_t>(m)};
        if (model.resolved().ignored(module) ||
            !model.resolved().keep_full_precision.matches(model.tree(), module)) {
            continue;
        }
        if (!targets[m]) {
            targets[m].emplace();
        }
        std::erase_if(*targets[m], [](const auto& argument) { return argument.first == "mixed_precision"; });
        targets[m]->emplace_back("mixed_precision", "null");
    }
}

/// Children before parents, and among siblings the first registered first.
/// Source: _get_post_order_named_modules: the reverse of a depth-first walk with a stack.
std::vector<ModuleIndex> post_order(const ModuleTree& tree) {
    std::vector<char> visited(tree.size(), 0);
    std::vector<ModuleIndex> stack{ModuleIndex{}};
    std::vector<ModuleIndex> order;
    visited[0] = 1;
    while (!stack.empty()) {
        const ModuleIndex top = stack.back();
        stack.pop_back();
        order.push_back(top);
        for (const ModuleIndex c : tree.children(top)) {
            if (visited[at(c)] == 0) {
                visited[at(c)] = 1;
                stack.push_back(c);
            }
        }
    }
    std::ranges::reverse(order);
    return order;
}

// _validate_frozen_params: each target's would-be parameters, taken bottom-up, must be uniform.
class FrozenCheck {
public:
    FrozenCheck(WrappedModel& model, const Targets& targets)
        : model_(model), tree_(model.tree()), targets_(targets) {
        visited_.assign(tree_.size(), 0);
        counted_.assign(tree_.tensors.size(), 0);
    }

    void run() {
        std::int32_t stamp = 0;
        for (const ModuleIndex m : post_order(tree_)) {
            if (!targets_[at(m)] || model_.stopped()) {
                continue;
            }
            frozen_.clear();
            trainable_.clear();
            uninitialized_.clear();
            walk(m, ++stamp);
            if (!uninitialized_.empty()) {
                model_.stop_at_uninitialized(m, "ValueError");
                return;
            }
            if (!frozen_.empty() && !trainable_.empty() && !model_.resolved().options->use_orig_params) {
                refuse(m);
            }
        }
    }

private:
    void walk(ModuleIndex target, std::int32_t stamp) {
        std::vector<ModuleIndex> queue{target};
        visited_[at(target)] = 1;
        for (std::size_t i = 0; i < queue.size(); ++i) {
            const ModuleIndex m = queue[i];
            const std::span<const TensorIndex> parameters = tree_.parameters(m);
            for (std::size_t k = 0; k < parameters.size(); ++k) {
                const TensorIndex t = parameters[k];
                if (model_.resolved().ignored(t) || counted_[at(t)] == stamp) {
                    continue;
                }
                counted_[at(t)] = stamp;
                const Tensor& tensor = tree_.tensors[at(t)];
                auto& list = tensor.uninitialized   ? uninitialized_
                             : tensor.requires_grad ? trainable_
                                                    : frozen_;
                list.emplace_back(m, k);
            }
            for (const ModuleIndex c : tree_.children(m)) {
                if (visited_[at(c)] == 0) {
                    visited_[at(c)] = 1;
                    queue.push_back(c);
                }
            }
        }
    }

    void refuse(ModuleIndex m) {
        Diagnostic d{.rule = WrapRule::mixed_requires_grad_in_target,
                     .severity = Severity::error,
                     .error_type = "ValueError",
                     .unit = tree_.path(m),
                     .error_text = tree_.path(m) +
                                   " has both parameters with requires_grad=True and False. "
                                   "FSDP does not support wrapping such modules when "
                                   "use_orig_params=False."};
        const auto& odd = trainable_.size() < frozen_.size() ? trainable_ : frozen_;
        for (const auto& [owner, k] : odd) {
            if (d.tensors.size() < most_tensors_named) {
                d.tensors.push_back(join_path(tree_.path(owner), tree_.parameter_names(owner)[k]));
            }
        }
        d.message =
            "\"" + d.unit + "\" has " + std::to_string(trainable_.size()) + " trainable and " +
            std::to_string(frozen_.size()) +
            " frozen parameters, which one unit cannot hold with use_orig_params=False; set it to True, or "
            "wrap the trainable modules on their own first";
        model_.report(std::move(d));
    }

    using Place = std::pair<ModuleIndex, std::size_t>;  // module and position among its parameters
    WrappedModel& model_;
    const ModuleTree& tree_;
    const Targets& targets_;
    std::vector<char> visited_;
    std::vector<std::int32_t> counted_;
    std::vector<Place> frozen_, trainable_, uninitialized_;
};

// _post_order_apply: every module object once, replaced in the slot through which it was first reached.
void construct_targets(WrappedModel& model, const Targets& targets) {
    const ModuleTree& tree = model.tree();
    std::vector<char> visited(tree.size(), 0);
    visited[0] = 1;
    const auto visit = [&](const auto& self, ModuleIndex m, ModuleIndex parent, std::int32_t slot) -> void {
        const std::int32_t begin = tree.child_begin[at(m)];
        const std::span<const ModuleIndex> children = tree.children(m);
        for (std::size_t i = 0; i < children.size() && !model.stopped(); ++i) {
            if (visited[at(children[i])] == 0) {
                visited[at(children[i])] = 1;
                self(self, children[i], m, begin + static_cast<std::int32_t>(i));
            }
        }
        if (slot != WrappedModel::root_slot && targets[at(m)] && !model.stopped()) {
            model.construct({.module = m, .parent = parent, .slot = slot, .arguments = *targets[at(m)]});
        }
    };
    visit(visit, ModuleIndex{}, ModuleIndex{}, WrappedModel::root_slot);
}

/// The slot at the end of a path, which exists.
WrappedModel::Request request_at(const ModuleTree& tree, const std::string& path) {
    WrappedModel::Request request;
    request.module = require_module(tree, path, "wrap calls");
    if (path.empty()) {
        return request;
    }
    const std::size_t dot = path.rfind('.');
    request.parent = require_module(tree, dot == std::string::npos ? "" : path.substr(0, dot), "wrap calls");
    const std::span<const std::string> names = tree.child_names(request.parent);
    const auto slot = std::ranges::find(names, dot == std::string::npos ? path : path.substr(dot + 1));
    request.slot = tree.child_begin[at(request.parent)] + static_cast<std::int32_t>(slot - names.begin());
    return request;
}

}  // namespace

void wrap_chosen_set(WrappedModel& model, const PolicySpec& spec) {
    Targets targets = spec.kind == PolicySpec::Kind::module_classes ? class_targets(model, spec.classes)
                                                                    : rule_targets(model, spec.rules);
    if (model.stopped()) {
        return;
    }
    add_full_precision_targets(model, targets);
    FrozenCheck(model, targets).run();
    if (!model.stopped()) {
        construct_targets(model, targets);
    }
}

void wrap_by_hand(WrappedModel& model, const PolicySpec& spec) {
    for (const PolicySpec::Call& call : spec.calls) {
        for (const std::string& path : call.modules) {
            if (!path.empty() && !model.stopped()) {
                model.construct(request_at(model.tree(), path));
            }
        }
    }
}

}  // namespace fsdplan
