#include "fsdplan/wrap.hpp"

#include <algorithm>

#include "wrap/fully_shard.hpp"
#include "wrap/recursion.hpp"
#include "wrap/set_path.hpp"
#include "wrap/wrap_with.hpp"
#include "wrap/wrapped_model.hpp"

namespace fsdplan {
namespace {

/// FSDP's constructor refuses these before it looks at the policy.
bool refused_at_once(WrappedModel& model, const PolicySpec& spec) {
    const WrapOptions& options = *model.resolved().options;
    Diagnostic d{.rule = {}, .severity = Severity::error, .error_type = "ValueError"};
    if (!options.ignored_modules.empty() && !options.ignored_parameters.empty()) {
        d.rule = WrapRule::ignored_both;
        d.message =
            "ignored_modules and ignored_states cannot be given together; name them all as ignored_states "
            "of one kind";
    } else if (spec.kind != PolicySpec::Kind::manual && !spec.calls.empty()) {
        d.rule = WrapRule::already_wrapped;
        d.unit = spec.calls.front().modules.front();
        d.message = "\"" + d.unit +
                    "\" is wrapped by hand already, and auto_wrap_policy refuses such a model; use one "
                    "or the other";
    } else {
        return false;
    }
    model.report(std::move(d));
    return true;
}

void warn_about_root(WrappedModel& model) {
    const ModuleTree& tree = model.tree();
    Diagnostic d{.rule = {}, .severity = Severity::warning};
    if (ClassSet(tree, default_exclude()).matches(tree, ModuleIndex{})) {
        d.rule = WrapRule::root_is_container;
        d.message = "the root is a container without a forward: nothing would gather its parameters";
        model.report(d);
    }
    if (model.resolved().ignored(ModuleIndex{})) {
        d.rule = WrapRule::root_ignored;
        d.message = "the root itself is ignored: nothing is sharded";
        model.report(d);
    }
}

}  // namespace

WrapPlan wrap_with(const ModuleTree& tree, const PolicySpec& spec, const Resolved& resolved,
                   std::optional<std::int64_t> min_num_params, BelowThreshold& below) {
    WrappedModel model(tree, resolved);
    if (refused_at_once(model, spec)) {
        return model.finish();
    }
    warn_about_root(model);
    switch (spec.kind) {
        case PolicySpec::Kind::none:
            break;
        case PolicySpec::Kind::recursive:
            wrap_recursively(model, make_policies(tree, spec, min_num_params), below);
            break;
        case PolicySpec::Kind::module_classes:
        case PolicySpec::Kind::custom:
            wrap_chosen_set(model, spec);
            break;
        case PolicySpec::Kind::manual:
            wrap_by_hand(model, spec);
            break;
        case PolicySpec::Kind::calls:
            FSDPLAN_ASSERT(false, "fully_shard calls have a path of their own");
    }
    if (!model.stopped()) {
        model.construct({});
    }
    WrapPlan plan = model.finish();
    plan.by_policy = spec.kind != PolicySpec::Kind::none && spec.kind != PolicySpec::Kind::manual;
    return plan;
}

WrapPlan wrap(const ModuleTree& tree, const PolicySpec& spec, const WrapOptions& options) {
    const Resolved resolved = resolve(tree, options);
    if (spec.kind == PolicySpec::Kind::calls) {
        return apply_fully_shard(tree, spec, resolved);
    }
    BelowThreshold nothing_asked;
    return wrap_with(tree, spec, resolved, std::nullopt, nothing_asked);
}

}  // namespace fsdplan
