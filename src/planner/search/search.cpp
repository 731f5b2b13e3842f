#include "fsdplan/search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "planner/search/explore.hpp"
#include "planner/search/in_parallel.hpp"
#include "planner/search/prefetch.hpp"
#include "planner/search/settings.hpp"
#include "planner/training_schedule.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_alternatives = 3;
constexpr int most_rounds = 4;                  // of searching with less memory
constexpr int most_improvements = 3;            // between what fitted and what did not
constexpr std::size_t verified_in_a_round = 6;  // plans whose reserved memory is looked at
constexpr std::size_t improved_settings = 2;
constexpr std::size_t looked_at_besides = 24;  // once a plan fits

/// By row: whether forward calls the module or one below it; empty when that is not known.
std::vector<char> called_rows(const ForwardCalls& calls, const ModuleTree& tree) {
    if (calls.empty()) {
        return {};
    }
    std::vector<char> called(tree.size(), 0);
    for (const ModuleIndex m : calls.module) {
        for (auto row = static_cast<std::int32_t>(at(m)); row >= 0;
             row = tree.parent[static_cast<std::size_t>(row)]) {
            called[static_cast<std::size_t>(row)] = 1;
        }
    }
    return called;
}

/// What is left to the allocator.
std::int64_t allocated_budget(const SearchQuestion& question) {
    const Cluster& cluster = question.question.cluster;
    const ProcessEstimate process = estimate_process(cluster, question.question.jobs.front());
    return cluster.budget.count - process.context.value - process.nccl.value;
}

class Search {
public:
    explicit Search(const SearchQuestion& question)
        : question_(question),
          facts_(facts_of(question.question.model, question.question.tree)),
          exploration_(question, allocated_budget(question)),
          next_limit_(exploration_.limit()),
          budget_(exploration_.limit()) {}

    SearchResult run() {
        for (const TrainingJob& job : question_.question.jobs) {
            check(job, question_.question.cluster.gpus);
        }
        make_settings();
        start();
        finish_small();
        if (const Found* best = exploration_.best()) {
            out_.proof.best = in_units_of(*best, best->cost);
        }
        if (question_.check_reserve) {
            fit_reserve();
        } else if (const Found* best = exploration_.best()) {
            choose(*best);
        }
        prove();
        collect();
        return std::move(out_);
    }

private:
    const TrainingJob& first_job() const { return question_.question.jobs.front(); }

    void make_settings() {
        const std::vector<TrainingJob> jobs = jobs_to_search(question_);
        const RuntimeInfo& info = runtime(first_job().runtime);
        std::vector<Evaluation> distinct;  // by what they ask of the operators
        std::vector<std::size_t> like(jobs.size());
        for (std::size_t j = 0; j < jobs.size(); ++j) {
            const Workload workload = workload_of(question_.question.tree, jobs[j], cluster().gpu);
            const auto known = std::ranges::find(workloads_, workload);
            like[j] = static_cast<std::size_t>(known - workloads_.begin());
            if (known == workloads_.end()) {
                workloads_.push_back(workload);
                distinct.push_back(evaluation_of(question_.question, facts_, jobs[j], cluster()));
            }
        }
        if (question_.free.units && info.has_units) {
            const ForwardCalls& recorded = distinct.front().operators.calls;
            space_ =
                space_of(question_.question.tree,
                         {.fold = question_.fold,
                          .reshard = question_.free.reshard && !info.wraps_by_policy,
                          .groups = question_.fold && !info.wraps_by_policy,
                          .called = called_rows(recorded.empty() ? question_.question.tree.calls : recorded,
                                                question_.question.tree)});
        }
        settings_.resize(jobs.size());
        in_parallel(jobs.size(), [&](std::size_t j) {
            settings_[j] = std::make_unique<Setting>(question_, space_, j, jobs[j],
                                                     evaluation_like(distinct[like[j]], jobs[j]));
        });
        for (std::size_t j = 0; j < jobs.size(); ++j) {
            order_.push_back(j);
        }
        std::ranges::stable_sort(order_, {}, [&](std::size_t s) { return least_cost(s); });
    }

    const Cluster& cluster() const { return question_.question.cluster; }
    double least_cost(std::size_t setting) const {
        return settings_[setting]->least_cost(exploration_.limit());
    }

    /// Settings by their bounds; those that cannot be better than what was found are left.
    void start() {
        for (const std::size_t s : order_) {
            const bool worth = least_cost(s) < exploration_.best_cost();
            if (worth && exploration_.may_go_on(settings_[s]->bound().step_ns(exploration_.limit())) &&
                started_.insert(s).second) {
                settings_[s]->start(exploration_);
            }
        }
        if (started_.empty() && !order_.empty()) {  // nothing can fit: as near as it goes
            const std::size_t s = *std::ranges::min_element(
                order_, {}, [&](std::size_t one) { return settings_[one]->bound().floor_bytes(); });
            started_.insert(s);
            settings_[s]->start(exploration_);
        }
    }

    /// The best settings so far, one slot at a time.
    void improve() {
        std::map<std::size_t, double> best_of;
        for (const Found& one : exploration_.found()) {
            if (exploration_.fits(one)) {
                const auto [known, added] = best_of.try_emplace(one.setting, one.cost);
                known->second = std::min(known->second, one.cost);
            }
        }
        std::vector<std::pair<double, std::size_t>> ranked;
        for (const auto& [setting, cost] : best_of) {
            ranked.emplace_back(cost, setting);
        }
        std::ranges::sort(ranked);
        if (ranked.empty()) {  // nothing fits yet: whatever needs least
            for (const std::size_t s : started_) {
                ranked.emplace_back(0.0, s);
            }
        }
        for (std::size_t i = 0; i < std::min(ranked.size(), improved_settings); ++i) {
            const std::size_t s = ranked[i].second;
            if (best_of.empty() || least_cost(s) < exploration_.best_cost()) {
                settings_[s]->improve(exploration_);
            }
        }
    }

    /// Spaces that can be searched to their end are.
    void finish_small() {
        finished_.assign(settings_.size(), false);
        for (const std::size_t s : order_) {
            if (least_cost(s) < exploration_.best_cost() * (1.0 - question_.limits.gap) &&
                exploration_.can_afford(settings_[s]->plans())) {
                finished_[s] = settings_[s]->finish(question_.limits.gap, exploration_);
            }
        }
    }

    /// The bound under the limit at which the recommended plan fits.
    void prove() {
        SearchProof& proof = out_.proof;
        proof.complete = true;
        bound_cost_ = exploration_.best_cost();
        for (std::size_t s = 0; s < settings_.size(); ++s) {
            // What a finished setting left undone it left because of its bound.
            const double least = finished_[s] ? settings_[s]->left_cost() : least_cost(s);
            const bool pruned = least >= exploration_.best_cost() * (1.0 - question_.limits.gap);
            proof.settings_pruned += !finished_[s] && pruned ? 1 : 0;
            proof.complete = proof.complete && (finished_[s] || pruned);
            bound_cost_ = std::min(bound_cost_, least);
        }
        proof.settings = static_cast<std::int64_t>(settings_.size());
        proof.space = space_in_words(question_);
        proof.log10_plans = std::log10(static_cast<double>(settings_.size()));
        for (const std::vector<Use>& uses : space_.uses) {
            proof.log10_plans += std::log10(static_cast<double>(uses.size()));
        }
        proof.limit_bytes = exploration_.limit();
        proof.floor_bytes = std::numeric_limits<std::int64_t>::max();
        for (const std::unique_ptr<Setting>& setting : settings_) {
            proof.floor_bytes = std::min(proof.floor_bytes, setting->bound().floor_bytes());
        }
    }

    /// A cost as a step of this plan's tokens, or in bytes.
    std::int64_t in_units_of(const Found& plan, double cost) const {
        const TrainingJob& job = settings_[plan.setting]->job();
        const double tokens = question_.objective == Objective::memory
                                  ? 1.0
                                  : static_cast<double>(job.tokens() * job.accumulate);
        return static_cast<std::int64_t>(std::llround(cost * tokens));
    }

    PlanResult full(const Found& found) {
        const Setting& setting = *settings_[found.setting];
        PlanResult plan = evaluate(setting.evaluation(), setting.plan_of(found.pattern), setting.job());
        finish(plan, setting.job());
        if (question_.free.units && runtime(setting.job().runtime).has_units) {
            plan.label = pattern_label(question_.question.tree, space_, found.pattern);
        }
        return plan;
    }

    void finish(PlanResult& plan, const TrainingJob& job) {
        out_.jobs.push_back(job);
        plan.job = out_.jobs.size() - 1;
        plan.label =
            runtime(job.runtime).has_units ? label_of(question_.question.tree, plan.wrap) : "whole model";
        plan.settings = settings_of(job, first_job());
        plan.strategies = compare_strategies(question_.question, plan.wrap, job);
        plan.code = code_of(question_.question, plan, job);
    }

    /// Searches with less memory until a plan fits with what its allocator may reserve, then with more again,
    /// between what fitted and what did not.
    void fit_reserve() {
        bool fits = verify();
        for (int round = 0; round < most_rounds && !fits && may_search(); ++round) {
            exploration_.limit_to(next_limit_);
            start();
            fits = verify();
        }
        if (!chosen_) {
            look_at_rest();
        }
        for (int round = 0; round < most_improvements && may_search(); ++round) {
            std::int64_t limit = next_limit_;
            if (chosen_) {
                const std::int64_t enough = chosen_->score.allocated_bytes;
                limit = too_much_ == nothing_failed ? budget_
                        : too_much_ <= enough       ? enough
                                                    : enough + (too_much_ - enough) / 2;
            }
            search_up_to(limit);
            if (!verify()) {
                too_much_ = std::min(too_much_, limit);
            }
        }
        look_at_rest();
        exploration_.limit_to(chosen_ ? std::max(chosen_->score.allocated_bytes, verified_limit_)
                                      : next_limit_);
    }

    /// What was found besides and is better than what fits: plans than which none is both faster and smaller.
    void look_at_rest() {
        std::vector<const Found*> rest;
        for (const Found& one : exploration_.found()) {
            if (!chosen_ || one.cost < chosen_->cost) {
                rest.push_back(&one);
            }
        }
        sort_by_cost(rest);
        std::size_t looked_at = 0;
        std::int64_t smallest = budget_ + 1;
        for (const Found* one : rest) {
            if (one->score.allocated_bytes >= smallest || looked_at == looked_at_besides) {
                continue;
            }
            smallest = one->score.allocated_bytes;
            ++looked_at;
            if (fits_with_reserve(*one)) {
                choose(*one);
                return;
            }
        }
    }

    bool fits_with_reserve(const Found& one) {
        const Setting& setting = *settings_[one.setting];
        const auto [known, added] = evaluated_.try_emplace({one.setting, one.pattern});
        if (added) {
            const PlanResult plan =
                evaluate(setting.evaluation(), setting.plan_of(one.pattern), setting.job());
            known->second = {.fits = plan.fits == true, .high_bytes = plan.process_bytes.high};
        }
        return known->second.fits;
    }

    void choose(const Found& one) {
        chosen_ = one;
        verified_limit_ = one.score.allocated_bytes;
    }

    bool may_search() { return !exploration_.stopped() && !exploration_.found().empty(); }

    void search_up_to(std::int64_t allocated_bytes) {
        exploration_.limit_to(allocated_bytes);
        start();
        improve();
        finish_small();
    }

    /// Whether one of the best plans within the limit fits, so that none that is better is left to look at.
    /// If not, `next_limit_` is as much less as these plans have shown to be needed on top.
    bool verify() {
        const std::vector<const Found*> ranked = fitting();
        double share = 0.0;
        for (std::size_t i = 0; i < std::min(ranked.size(), verified_in_a_round); ++i) {
            if (chosen_ && ranked[i]->cost >= chosen_->cost) {
                return true;
            }
            if (fits_with_reserve(*ranked[i])) {
                choose(*ranked[i]);
                verified_limit_ = exploration_.limit();
                return true;
            }
            too_much_ = std::min(too_much_, ranked[i]->score.allocated_bytes);
            share = std::max(
                share,
                static_cast<double>(cluster().budget.count) /
                    static_cast<double>(evaluated_.at({ranked[i]->setting, ranked[i]->pattern}).high_bytes));
        }
        if (!ranked.empty()) {
            const auto largest = static_cast<double>(ranked.front()->score.allocated_bytes);
            next_limit_ = static_cast<std::int64_t>(largest * std::min(share, 0.98));
        }
        return false;
    }

    static void sort_by_cost(std::vector<const Found*>& plans) {
        std::ranges::stable_sort(plans, [](const Found* a, const Found* b) {
            return std::pair(a->cost, a->score.allocated_bytes) <
                   std::pair(b->cost, b->score.allocated_bytes);
        });
    }

    std::vector<const Found*> fitting() const {
        std::vector<const Found*> ranked;
        for (const Found& one : exploration_.found()) {
            if (exploration_.fits(one)) {
                ranked.push_back(&one);
            }
        }
        sort_by_cost(ranked);
        return ranked;
    }

    void collect() {
        const Evaluation own = evaluation_of(question_.question, facts_, first_job(), cluster());
        out_.current = evaluate(own, units_of(question_.question, first_job()), first_job());
        finish(out_.current, first_job());
        if (chosen_) {
            out_.recommended = full(*chosen_);
            try_prefetching();
            add_alternatives();
        }
        set_closest();
        set_waits();
        set_frontier();
        set_verdict();
        SearchProof& proof = out_.proof;
        proof.simulated = static_cast<std::int64_t>(exploration_.found().size());
        proof.stopped = exploration_.stopped();
        const Found* about = chosen_ ? &*chosen_ : exploration_.best();
        if (about != nullptr && bound_cost_ > 0.0) {
            proof.bound = in_units_of(*about, bound_cost_);
            const std::int64_t step =
                out_.recommended ? out_.recommended->step_ns.value : about->score.step_ns;
            const double cost =
                question_.objective == Objective::time
                    ? about->cost * static_cast<double>(step) / static_cast<double>(about->score.step_ns)
                    : about->cost;
            proof.gap = (cost - bound_cost_) / bound_cost_;
        }
    }

    /// The recommended units with other prefetching, where that is faster and fits as well.
    void try_prefetching() {
        if (!question_.free.prefetch || question_.objective != Objective::time) {
            return;
        }
        const Setting& setting = *settings_[chosen_->setting];
        const WrapPlan units = out_.recommended->wrap;
        for (const TrainingJob& job : with_other_prefetching(setting.evaluation(), units, setting.job())) {
            PlanResult plan = evaluate(setting.evaluation(), units, job);
            if (plan.fits == true && plan.step_ns.value < out_.recommended->step_ns.value) {
                finish(plan, job);
                plan.label = out_.recommended->label;
                out_.recommended = std::move(plan);
            }
        }
    }

    /// The best of other settings that fit with certainty.
    void add_alternatives() {
        std::set<std::size_t> taken{chosen_->setting};
        std::size_t looked_at = 0;
        for (const Found* one : fitting()) {
            if (taken.contains(one->setting) || looked_at == 2 * most_alternatives ||
                out_.alternatives.size() == most_alternatives) {
                continue;
            }
            taken.insert(one->setting);
            ++looked_at;
            PlanResult plan = full(*one);
            if (plan.fits == true) {
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
        const Found* least = exploration_.best();
        for (const Found& one : exploration_.found()) {
            if (least == nullptr || one.score.allocated_bytes < least->score.allocated_bytes) {
                least = &one;
            }
        }
        out_.closest = least == nullptr ? out_.current : full(*least);
    }

    void set_waits() {
        const TrainingJob& job = out_.jobs[out_.closest.job];
        const Played played =
            play_plan(evaluation_of(question_.question, facts_, job, cluster()), out_.closest.wrap, job);
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
        const auto time = [&](const Found& one) {
            const TrainingJob& job = settings_[one.setting]->job();
            return static_cast<double>(one.score.step_ns) /
                   static_cast<double>(job.tokens() * job.accumulate);
        };
        std::vector<const Found*> all;
        for (const Found& one : exploration_.found()) {
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
                                     .label = pattern_label(question_.question.tree, space_, one->pattern),
                                     .settings = settings_of(settings_[one->setting]->job(), first_job())});
        }
    }

    void set_verdict() {
        const PlanResult& plan = out_.closest;
        out_.verdict.fits = plan.runs() ? plan.fits : std::optional<bool>(false);
        out_.verdict.left_bytes = plan.left_bytes;
        out_.verdict.decided_by = plan.runs() ? deciding_term(plan) : std::string(name(refusal(plan)->rule));
        out_.verdict.text = verdict_text(plan, out_.verdict.decided_by, cluster().budget.count);
        if (plan.runs()) {
            const SweepQuestion question = with_jobs(question_.question, out_.jobs);
            if (plan.fits != true) {
                out_.verdict.next = nearest_that_fit(question, facts_, plan);
            }
            for (Change& change : changes_for(question, facts_, plan)) {
                if (std::ranges::find(out_.verdict.next, change.change, &Change::change) ==
                    out_.verdict.next.end()) {
                    out_.verdict.next.push_back(std::move(change));
                }
            }
        }
    }

    struct Evaluated {
        bool fits = false;
        std::int64_t high_bytes = 0;
    };

    const SearchQuestion& question_;
    ModelFacts facts_;
    Space space_;
    std::vector<Workload> workloads_;
    std::vector<std::unique_ptr<Setting>> settings_;
    std::vector<std::size_t> order_;  // by their bounds
    std::set<std::size_t> started_;
    Exploration exploration_;
    double bound_cost_ = 0.0;
    std::vector<bool> finished_;   // settings that were searched to their end
    std::optional<Found> chosen_;  // by all that is known the best that fits
    std::int64_t next_limit_;      // of the allocated peak
    static constexpr std::int64_t nothing_failed = std::numeric_limits<std::int64_t>::max();
    std::int64_t budget_;                     // for the allocated peak
    std::int64_t too_much_ = nothing_failed;  // … that did not fit
    std::int64_t verified_limit_ = 0;         // of the search that found it
    std::map<std::pair<std::size_t, Pattern>, Evaluated> evaluated_;
    SearchResult out_;
};

}  // namespace

SearchResult search(const SearchQuestion& question) {
    return Search(question).run();
}

SearchResult check_plan(const SearchQuestion& question) {
    SearchQuestion pinned = question;
    pinned.free = {.units = false,
                   .reshard = false,
                   .mesh = false,
                   .checkpointing = false,
                   .optimizer = false,
                   .batch = false,
                   .prefetch = false};
    return search(pinned);
}

SweepQuestion with_jobs(const SweepQuestion& question, std::vector<TrainingJob> jobs) {
    SweepQuestion out = question;
    out.jobs = std::move(jobs);
    return out;
}

SweepResult as_sweep(const SearchResult& result) {
    SweepResult out{.verdict = result.verdict, .assumptions = result.assumptions};
    out.plans.push_back(result.closest);
    out.plans.insert(out.plans.end(), result.alternatives.begin(), result.alternatives.end());
    out.plans.push_back(result.current);
    if (result.recommended) {
        out.recommended = 0;
    }
    return out;
}

}  // namespace fsdplan
