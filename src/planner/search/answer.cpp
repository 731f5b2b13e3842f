#include "planner/search/answer.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "planner/search/prefetch.hpp"
#include "planner/search/settings.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_alternatives = 3;

class Answer {
public:
    explicit Answer(const SearchOutcome& outcome)
        : outcome_(outcome), question_(outcome.question), out_{.proof = outcome.proof} {}

    SearchResult run() {
        set_current();
        if (outcome_.chosen) {
            out_.recommended = full(*outcome_.chosen);
            try_prefetching();
            add_alternatives();
        }
        set_closest();
        set_checkpoint();
        set_waits();
        set_frontier();
        set_verdict();
        set_gap();
        return std::move(out_);
    }

private:
    const TrainingJob& first_job() const { return question_.question.jobs.front(); }
    const Cluster& cluster() const { return question_.question.cluster; }
    const ModuleTree& tree() const { return question_.question.tree; }
    const Setting& setting_of(const Found& found) const { return *outcome_.settings[found.setting]; }

    PlanResult full(const Found& found) {
        const Setting& setting = setting_of(found);
        PlanResult plan = evaluate(setting.evaluation(), setting.plan_of(found.pattern), setting.job());
        finish(plan, setting.job());
        if (question_.free.units && runtime(setting.job().runtime).has_units) {
            plan.label = pattern_label(tree(), outcome_.space, found.pattern);
        }
        return plan;
    }

    void finish(PlanResult& plan, const TrainingJob& job) {
        out_.jobs.push_back(job);
        plan.job = out_.jobs.size() - 1;
        plan.label = runtime(job.runtime).has_units ? label_of(tree(), plan.wrap) : "whole model";
        plan.settings = settings_of(job, first_job());
        plan.strategies = compare_strategies(question_.question, plan.wrap, job);
        plan.code = code_of(question_.question, plan, job);
    }

    void set_current() {
        const Evaluation own = evaluation_of(question_.question, outcome_.facts, first_job(), cluster());
        out_.current = evaluate(own, units_of(question_.question, first_job()), first_job());
        finish(out_.current, first_job());
    }

    /// The recommended units with other prefetching, where that is faster and fits as well.
    void try_prefetching() {
        if (!question_.free.prefetch || question_.objective != Objective::time) {
            return;
        }
        const Setting& setting = setting_of(*outcome_.chosen);
        const WrapPlan units = out_.recommended->wrap;
        for (const TrainingJob& job : with_other_prefetching(setting.evaluation(), units, setting.job())) {
            PlanResult plan = evaluate(setting.evaluation(), units, job);
            if (fits(plan, job) && plan.step_ns.value < out_.recommended->step_ns.value) {
                finish(plan, job);
                plan.label = out_.recommended->label;
                out_.recommended = std::move(plan);
            }
        }
    }

    bool fits(const PlanResult& plan, const TrainingJob& job) const {
        return plan.fits == true && fits_while_saving(question_.question, job, plan, question_.saving);
    }

    void set_checkpoint() {
        const TrainingJob& job = out_.jobs[out_.closest.job];
        if (has_state_dicts(job)) {
            out_.checkpoint = plan_checkpoint(question_.question, job, out_.closest, question_.saving);
        }
    }

    /// The best of other settings that fit with certainty.
    void add_alternatives() {
        std::set<std::size_t> taken{outcome_.chosen->setting};
        std::size_t looked_at = 0;
        for (const Found* one : outcome_.exploration.fitting()) {
            if (taken.contains(one->setting) || looked_at == 2 * most_alternatives ||
                out_.alternatives.size() == most_alternatives) {
                continue;
            }
            taken.insert(one->setting);
            ++looked_at;
            PlanResult plan = full(*one);
            if (fits(plan, out_.jobs[plan.job])) {
                out_.alternatives.push_back(std::move(plan));
            }
        }
    }

    /// What is shown where nothing fits with certainty: what may fit, else what needs least.
    void set_closest() {
        if (out_.recommended) {
            out_.closest = *out_.recommended;
            return;
        }
        const Found* least = outcome_.exploration.best();
        for (const Found& one : outcome_.exploration.found()) {
            if (least == nullptr || one.score.allocated_bytes < least->score.allocated_bytes) {
                least = &one;
            }
        }
        out_.closest = least == nullptr ? out_.current : full(*least);
    }

    void set_waits() {
        const TrainingJob& job = out_.jobs[out_.closest.job];
        const Played played = play_plan(evaluation_of(question_.question, outcome_.facts, job, cluster()),
                                        out_.closest.wrap, job);
        std::map<Cause, std::int64_t> sums;
        for (const ExposedWait& wait : exposed_waits(played.schedule, played.timeline)) {
            if (wait.op >= played.schedule.iteration_begin.back()) {
                sums[wait.cause] += wait.end_ns - wait.start_ns;
            }
        }
        out_.waits.assign(sums.begin(), sums.end());
        std::ranges::stable_sort(out_.waits, std::ranges::greater{}, &std::pair<Cause, std::int64_t>::second);
    }

    void set_frontier() {
        const auto time = [&](const Found& one) { return setting_of(one).ns_per_token(one.score.step_ns); };
        std::vector<const Found*> all;
        for (const Found& one : outcome_.exploration.found()) {
            all.push_back(&one);
        }
        std::ranges::stable_sort(all, [&](const Found* a, const Found* b) {
            return std::pair(a->score.allocated_bytes, time(*a)) <
                   std::pair(b->score.allocated_bytes, time(*b));
        });
        double fastest = std::numeric_limits<double>::infinity();
        for (const Found* one : all) {
            if (time(*one) >= fastest) {
                continue;
            }
            fastest = time(*one);
            out_.frontier.push_back({.allocated_bytes = one->score.allocated_bytes,
                                     .ns_per_token = fastest,
                                     .step_ns = one->score.step_ns,
                                     .label = pattern_label(tree(), outcome_.space, one->pattern),
                                     .settings = settings_of(setting_of(*one).job(), first_job())});
        }
    }

    void set_verdict() {
        const PlanResult& plan = out_.closest;
        out_.verdict = verdict_of(plan, cluster().budget.count);
        if (plan.fits == true && !out_.recommended && out_.checkpoint) {
            out_.verdict.fits = false;
            out_.verdict.decided_by = "saving";
            out_.verdict.text = out_.checkpoint->verdict;
        }
        if (plan.runs()) {
            const SweepQuestion question = with_jobs(question_.question, out_.jobs);
            if (plan.fits != true) {
                out_.verdict.next = nearest_that_fit(question, outcome_.facts, plan);
            }
            for (Change& change : changes_for(question, outcome_.facts, plan)) {
                if (std::ranges::find(out_.verdict.next, change.change, &Change::change) ==
                    out_.verdict.next.end()) {
                    out_.verdict.next.push_back(std::move(change));
                }
            }
        }
    }

    /// The bound in the unit of the recommended plan, and how far that is from it.
    void set_gap() {
        SearchProof& proof = out_.proof;
        proof.simulated = static_cast<std::int64_t>(outcome_.exploration.found().size());
        proof.stopped = outcome_.exploration.stopped();
        const Found* about = outcome_.chosen ? &*outcome_.chosen : outcome_.exploration.best();
        if (about == nullptr || outcome_.bound_cost <= 0.0) {
            return;
        }
        const Setting& setting = setting_of(*about);
        // Prefetching may have made the step shorter.
        const std::int64_t step_ns =
            out_.recommended ? out_.recommended->step_ns.value : about->score.step_ns;
        proof.bound = setting.amount_of(outcome_.bound_cost);
        proof.gap = setting.cost_of(step_ns, about->score.allocated_bytes) / outcome_.bound_cost - 1.0;
    }

    const SearchOutcome& outcome_;
    const SearchQuestion& question_;
    SearchResult out_;
};

}  // namespace

SearchResult answer_of(const SearchOutcome& outcome) {
    return Answer(outcome).run();
}

}  // namespace fsdplan
