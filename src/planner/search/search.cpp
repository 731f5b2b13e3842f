#include "fsdplan/search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "planner/search/answer.hpp"
#include "planner/search/setting_table.hpp"

namespace fsdplan {
namespace {

constexpr double first_part = 0.4;              // of the work, until a plan fits by what it allocates
constexpr int most_rounds = 4;                  // of searching with less memory
constexpr int most_improvements = 3;            // between what fitted and what did not
constexpr std::size_t verified_in_a_round = 6;  // plans whose reserved memory is looked at
constexpr std::size_t improved_settings = 2;
constexpr int most_tightened = 24;             // ranges, for the proof alone
constexpr double fine = 0.003;                 // of a step's time
constexpr std::size_t looked_at_besides = 24;  // once a plan fits

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
          settings_(question, facts_),
          exploration_(question, allocated_budget(question)),
          next_limit_(exploration_.limit()),
          budget_(exploration_.limit()) {}

    SearchResult run() {
        for (std::size_t s = 0; s < settings_.size(); ++s) {
            order_.push_back(s);
        }
        std::ranges::stable_sort(order_, {}, [&](std::size_t s) { return least_cost(s); });
        exploration_.spend(question_.check_reserve ? first_part : 1.0);
        start();
        finish_small();
        if (const Found* best = exploration_.best()) {
            proof_.best = settings_[best->setting].amount_of(best->cost);
        }
        if (question_.check_reserve) {
            fit_reserve();
            finish_small();  // at the limit that the proof is about
        } else if (const Found* best = exploration_.best()) {
            choose(*best);
        }
        prove();
        return answer_of({.question = question_,
                          .facts = facts_,
                          .space = settings_.space(),
                          .settings = settings_.settings(),
                          .exploration = exploration_,
                          .chosen = chosen_,
                          .bound_cost = bound_cost_,
                          .proof = proof_});
    }

private:
    const Cluster& cluster() const { return question_.question.cluster; }
    double least_cost(std::size_t setting) const {
        return settings_[setting].least_cost(exploration_.limit());
    }
    std::int64_t step_bound(std::size_t setting) const {
        return settings_[setting].bound().step_ns(exploration_.limit());
    }
    double least_cost(const CheckpointRange& range) const {
        return settings_.least_cost(range, exploration_.limit());
    }

    /// Whether a number in the range may be worth more than those at its ends: the lower one takes too much
    /// memory, and the numbers make a difference.
    bool is_open(const CheckpointRange& range) const {
        const bool enough = std::ranges::any_of(exploration_.found(), [&](const Found& one) {
            return one.setting == range.fewer && exploration_.fits(one);
        });
        return !enough && settings_.width(range) > fine && least_cost(range) < exploration_.best_cost();
    }

    /// Halves the ranges that may hold something better than what was found, the most promising first.
    void refine() {
        const std::vector<CheckpointRange>& ranges = settings_.ranges();
        while (true) {
            std::optional<std::size_t> next;
            for (std::size_t r = 0; r < ranges.size(); ++r) {
                const bool better = !next || least_cost(ranges[r]) < least_cost(ranges[*next]);
                next = better && is_open(ranges[r]) ? std::optional(r) : next;
            }
            if (!next || !exploration_.may_go_on(step_bound(ranges[*next].fewer))) {
                return;
            }
            order_.push_back(settings_.halve(*next));
            start(order_.back());
        }
    }

    /// A setting, unless it cannot be better than what was found.
    void start(std::size_t s) {
        const bool worth = least_cost(s) < exploration_.best_cost();
        if (worth && exploration_.may_go_on(step_bound(s)) && started_.insert(s).second) {
            settings_[s].start(exploration_);
        }
    }

    /// Settings by their bounds.
    void start() {
        for (const std::size_t s : order_) {
            start(s);
        }
        refine();
        if (started_.empty() && !order_.empty()) {  // nothing can fit: as near as it goes
            const std::size_t s = *std::ranges::min_element(
                order_, {}, [&](std::size_t one) { return settings_[one].bound().floor_bytes(); });
            started_.insert(s);
            settings_[s].start(exploration_);
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
                settings_[s].improve(exploration_);
            }
        }
    }

    /// Spaces that can be searched to their end are.
    void finish_small() {
        finished_.assign(settings_.size(), false);
        for (const std::size_t s : order_) {
            if (least_cost(s) < exploration_.best_cost() * (1.0 - question_.limits.gap) &&
                exploration_.can_afford(settings_[s].plans())) {
                finished_[s] = settings_[s].finish(question_.limits.gap, exploration_);
            }
        }
    }

    double least_left_cost(std::size_t setting) const {
        // What a finished setting left undone it left because of its bound.
        return finished_[setting] ? settings_[setting].left_cost() : least_cost(setting);
    }

    /// Ranges that alone keep the bound low are halved for what the numbers in them allow.
    void tighten() {
        finished_.resize(settings_.size(), false);
        double bound = exploration_.best_cost();
        for (std::size_t s = 0; s < settings_.size(); ++s) {
            bound = std::min(bound, least_left_cost(s));
        }
        const std::vector<CheckpointRange>& ranges = settings_.ranges();
        for (int halved = 0; halved < most_tightened && !ranges.empty(); ++halved) {
            const auto least = std::ranges::min_element(
                ranges, {}, [&](const CheckpointRange& range) { return least_cost(range); });
            if (least_cost(*least) >= bound) {
                return;
            }
            const std::size_t middle = settings_.halve(static_cast<std::size_t>(least - ranges.begin()));
            finished_.push_back(false);
            bound = std::min(bound, least_cost(middle));
        }
    }

    /// The bound under the limit at which the recommended plan fits.
    void prove() {
        tighten();
        proof_.complete = true;
        bound_cost_ = exploration_.best_cost();
        for (std::size_t s = 0; s < settings_.size(); ++s) {
            const double least = least_left_cost(s);
            const bool pruned = least >= exploration_.best_cost() * (1.0 - question_.limits.gap);
            proof_.settings_pruned += !finished_[s] && pruned ? 1 : 0;
            proof_.complete = proof_.complete && (finished_[s] || pruned);
            bound_cost_ = std::min(bound_cost_, least);
        }
        std::size_t settings = settings_.size();
        for (const CheckpointRange& range : settings_.ranges()) {
            const bool pruned = least_cost(range) >= exploration_.best_cost() * (1.0 - question_.limits.gap);
            proof_.settings_pruned += pruned ? static_cast<std::int64_t>(range.numbers()) : 0;
            proof_.complete = proof_.complete && pruned;
            bound_cost_ = std::min(bound_cost_, least_cost(range));
            settings += range.numbers();
        }
        proof_.settings = static_cast<std::int64_t>(settings);
        proof_.space = space_in_words(question_);
        proof_.log10_plans = std::log10(static_cast<double>(settings));
        for (const std::vector<Use>& uses : settings_.space().uses) {
            proof_.log10_plans += std::log10(static_cast<double>(uses.size()));
        }
        proof_.limit_bytes = exploration_.limit();
        proof_.floor_bytes = std::numeric_limits<std::int64_t>::max();
        for (const std::unique_ptr<Setting>& setting : settings_.settings()) {
            proof_.floor_bytes = std::min(proof_.floor_bytes, setting->bound().floor_bytes());
        }
    }

    /// Searches with less memory until a plan fits with what its allocator may reserve, then with more again,
    /// between what fitted and what did not.
    void fit_reserve() {
        bool fits = verify();
        for (int round = 0; round < most_rounds && !fits && may_search(); ++round) {
            exploration_.limit_to(next_limit_);
            exploration_.spend(1.0 / (most_rounds + 1 - round));
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
            exploration_.spend(1.0 / (most_improvements - round));
            search_up_to(limit);
            if (!verify()) {
                too_much_ = std::min(too_much_, limit);
            }
        }
        look_at_rest();
        exploration_.spend(1.0);
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
        const Setting& setting = settings_[one.setting];
        const auto [known, added] = evaluated_.try_emplace({one.setting, one.pattern});
        if (added) {
            const PlanResult plan =
                evaluate(setting.evaluation(), setting.plan_of(one.pattern), setting.job());
            known->second = {.fits = plan.fits == true && fits_while_saving(question_.question, setting.job(),
                                                                            plan, question_.saving),
                             .high_bytes = plan.process_bytes.high};
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
        const std::vector<const Found*> ranked = exploration_.fitting();
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

    struct Evaluated {
        bool fits = false;
        std::int64_t high_bytes = 0;
    };

    const SearchQuestion& question_;
    ModelFacts facts_;
    SettingTable settings_;
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
    SearchProof proof_;
};

}  // namespace

SearchResult search(const SearchQuestion& question) {
    for (const TrainingJob& job : question.question.jobs) {
        check(job, question.question.cluster.gpus);
    }
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
