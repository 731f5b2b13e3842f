#include "fsdplan/wrap.hpp"

namespace fsdplan {

WrapPlan wrap_fsdp1(const ModuleTree& tree, const PolicySpec& spec, const WrapOptions& options) {
    PolicySpec by_hand = spec;
    if (spec.kind == PolicySpec::Kind::calls) {
        by_hand.kind = PolicySpec::Kind::manual;
    }
    return wrap(tree, by_hand, options);
}

WrapPlan wrap_fsdp2(const ModuleTree& tree, const PolicySpec& spec, const WrapOptions& options) {
    WrapPlan plan = wrap(tree, spec, options);
    return spec.kind == PolicySpec::Kind::calls ? plan : as_fully_shard(tree, plan, options);
}

WrapPlan as_fully_shard(const ModuleTree& tree, const WrapPlan& drawn, const WrapOptions& options) {
    if (!drawn.complete) {
        return drawn;
    }
    PolicySpec calls;
    calls.kind = PolicySpec::Kind::calls;
    for (const std::int32_t unit : drawn.construction_order) {
        calls.calls.push_back({.modules = {drawn.units[static_cast<std::size_t>(unit)].path}});
    }
    return wrap(tree, calls, options);
}

}  // namespace fsdplan
