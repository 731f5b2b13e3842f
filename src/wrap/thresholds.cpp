#include <algorithm>

#include "fsdplan/wrap.hpp"
#include "wrap/wrap_with.hpp"

namespace fsdplan {
namespace {

bool same_result(const WrapPlan& a, const WrapPlan& b) {
    if (!a.complete || !b.complete) {  // what had been constructed before the error matters to nobody
        return a.complete == b.complete && a.construction_error()->rule == b.construction_error()->rule;
    }
    return std::ranges::equal(a.units, b.units, {}, &Unit::path, &Unit::path);
}

}  // namespace

std::vector<ThresholdInterval> thresholds(const ModuleTree& tree, const PolicySpec& spec,
                                          const WrapOptions& options) {
    FSDPLAN_ASSERT(spec.kind == PolicySpec::Kind::recursive,
                   "only the recursive path compares with a threshold");
    const Resolved resolved = resolve(tree, options);
    std::vector<ThresholdInterval> out;
    std::optional<std::int64_t> high;
    std::int64_t threshold = tree.numel[0] + 1;
    while (threshold >= 0) {
        BelowThreshold below{.threshold = threshold};
        WrapPlan plan = wrap_with(tree, spec, resolved, threshold, below);
        const std::int64_t low = std::max<std::int64_t>(0, below.largest.value_or(-1) + 1);
        if (!out.empty() && same_result(out.back().plan, plan)) {
            out.back().low = low;
        } else {
            out.push_back({.low = low, .high = high, .plan = std::move(plan)});
        }
        threshold = low - 1;
        high = threshold;
    }
    return out;
}

}  // namespace fsdplan
