#include <algorithm>

#include "base/quantity.hpp"
#include "planner/evaluation.hpp"
#include "planner/single_changes.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_changes = 3;

struct Tried {
    std::string change;
    PlanResult result;
    double tokens_per_ns = 0.0;
};

int rank_of(const std::optional<bool>& fits) {
    return fits ? (*fits ? 2 : 0) : 1;
}

std::string effect_of(const PlanResult& before, const Tried& tried, double tokens_per_ns) {
    const PlanResult& after = tried.result;
    const std::int64_t freed = before.process_bytes.value - after.process_bytes.value;
    std::string text =
        show_bytes(std::max(freed, -freed)) + (freed >= 0 ? " less" : " more") + " at the peak, ";
    if (!after.fits) {
        text += "may fit";
    } else if (*after.fits) {
        text += "fits with " + show_bytes(after.left_bytes) + " left";
    } else {
        text += "still does not fit";
    }
    const double ratio = tried.tokens_per_ns / tokens_per_ns;
    const auto percent =
        static_cast<int>(ratio >= 1.0 ? (ratio - 1.0) * 100.0 + 0.5 : (1.0 - ratio) * 100.0 + 0.5);
    if (percent >= 1) {
        text += ", about " + std::to_string(percent) + " % " + (ratio >= 1.0 ? "more" : "fewer") +
                " tokens a second";
    }
    return text;
}

}  // namespace

std::vector<Change> changes_for(const SweepQuestion& question, const ModelFacts& facts,
                                const PlanResult& plan) {
    const double now = tokens_per_ns(plan, question.jobs[plan.job], question.cluster.gpus);
    std::vector<Tried> tried;
    for (const SingleChange& change : single_changes(question, facts, plan)) {
        if ((change.purpose == SingleChange::For::speed) != (plan.fits == true)) {
            continue;
        }
        ChangedPlan changed = with_change(question, facts, plan, change);
        const std::int64_t freed = plan.process_bytes.value - changed.result.process_bytes.value;
        const bool helps = plan.fits == true ? changed.result.fits == true && changed.tokens_per_ns > now
                                             : freed > question.cluster.budget.count / 100;
        if (helps) {
            tried.push_back({change.change, std::move(changed.result), changed.tokens_per_ns});
        }
    }
    std::ranges::stable_sort(tried, [](const Tried& a, const Tried& b) {
        const int left = rank_of(a.result.fits);
        const int right = rank_of(b.result.fits);
        if (left != right) {
            return left > right;
        }
        return left == 2 ? a.tokens_per_ns > b.tokens_per_ns
                         : a.result.process_bytes.value < b.result.process_bytes.value;
    });
    std::vector<Change> changes;
    for (std::size_t i = 0; i < std::min(tried.size(), most_changes); ++i) {
        changes.push_back({tried[i].change, effect_of(plan, tried[i], now)});
    }
    return changes;
}

}  // namespace fsdplan
