#include "fsdplan/explain.hpp"

#include <algorithm>

#include "planner/single_changes.hpp"

namespace fsdplan {
namespace {

int rank_of(const ExplainedChange& change) {
    if (!change.refused.empty()) {
        return 0;
    }
    return change.fits ? (*change.fits ? 3 : 1) : 2;
}

ExplainedChange explained(const SingleChange& change, const PlanResult& before, const ChangedPlan& after,
                          double now) {
    ExplainedChange out{.change = change.change,
                        .process_bytes = after.result.process_bytes.value,
                        .freed_bytes = before.process_bytes.value - after.result.process_bytes.value,
                        .step_ns = after.result.step_ns,
                        .speed = after.tokens_per_ns / now,
                        .fits = after.result.fits,
                        .refused = {},
                        .side_effect = change.side_effect};
    if (const Diagnostic* error = refusal(after.result.wrap)) {
        out.refused = error->message;
    }
    return out;
}

}  // namespace

Explanation explain(const SweepQuestion& question, const StepOptions& options) {
    Explanation out{.step = simulate_step(question, options), .changes = {}};
    const ModelFacts facts = facts_of(question.model, question.tree);
    const PlanResult& plan = out.step.plan;
    const double now = tokens_per_ns(plan, question.jobs.front(), question.cluster.gpus);
    for (const SingleChange& change : single_changes(question, facts, plan)) {
        const ChangedPlan changed = with_change(question, facts, plan, change);
        const bool other =
            changed.result.process_bytes != plan.process_bytes || changed.result.step_ns != plan.step_ns;
        if (other) {
            out.changes.push_back(explained(change, plan, changed, now));
        }
    }
    const bool fits = plan.fits == true;
    std::ranges::stable_sort(out.changes, [&](const ExplainedChange& a, const ExplainedChange& b) {
        const int left = rank_of(a);
        const int right = rank_of(b);
        if (left != right) {
            return left > right;
        }
        return fits || left == 3 ? a.speed > b.speed : a.freed_bytes > b.freed_bytes;
    });
    return out;
}

}  // namespace fsdplan
