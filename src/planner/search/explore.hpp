#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/search/bound.hpp"
#include "planner/search/space.hpp"

namespace fsdplan {

/// A plan that was simulated.
struct Found {
    std::size_t setting = 0;  ///< which of the search's jobs
    Pattern pattern;
    Score score;
    double cost = 0.0;  ///< what the search minimises: ns a token, or bytes
};

/// The best first, of equal ones those that allocate less.
void sort_by_cost(std::vector<const Found*>& plans);

/// What all settings of a search share.
class Exploration {
public:
    Exploration(const SearchQuestion& question, std::int64_t limit_bytes)
        : question_(question), limit_bytes_(limit_bytes), allowed_(question.limits.operations) {}

    void add(Found one);
    const std::vector<Found>& found() const { return found_; }

    /// Plans that allocate at most this count as fitting.
    std::int64_t limit() const { return limit_bytes_; }
    void limit_to(std::int64_t allocated_bytes);
    bool fits(const Found& one) const { return one.score.allocated_bytes <= limit_bytes_; }
    std::vector<const Found*> fitting() const;  ///< the best first
    /// Of those that fit; null: none does.
    const Found* best() const { return best_ ? &found_[*best_] : nullptr; }
    double best_cost() const { return best_ ? found_[*best_].cost : std::numeric_limits<double>::infinity(); }

    /// Of the work that is left only this part may be spent for now.
    void spend(double part);
    /// Whether there is work left to spend and nobody has said stop.
    bool may_go_on(std::int64_t bound_ns);
    bool stopped() const { return stopped_; }
    /// What simulating so many plans like those so far would cost stays within the limit.
    bool can_afford(double plans) const;
    /// How many such plans the whole work is good for.
    double affordable_plans() const;

private:
    double operations_each() const;

    const SearchQuestion& question_;
    std::vector<Found> found_;
    std::optional<std::size_t> best_;
    std::int64_t limit_bytes_;
    std::int64_t allowed_;         // operations
    std::int64_t operations_ = 0;  // simulated so far
    bool stopped_ = false;
};

/// The plans of one job.
class Setting {
public:
    /// `question` and `space` must outlive it, and what `about` refers to; `about` is the evaluation of
    /// `job`.
    Setting(const SearchQuestion& question, const Space& space, std::size_t index, TrainingJob job,
            Evaluation about);

    const TrainingJob& job() const { return job_; }
    const Evaluation& evaluation() const { return about_; }
    const StepBound& bound() const { return bound_; }
    /// The least that any plan of this job can cost that allocates at most `limit_bytes`; infinite when none
    /// can.
    double least_cost(std::int64_t limit_bytes, const Decided& decided = {}) const;
    WrapPlan plan_of(const Pattern& pattern) const;

    /// Simulates a pattern unless it was already; nothing for one that PyTorch refuses.
    const Found* simulate(const Pattern& pattern, Exploration& into);
    /// The same for many, on all cores.
    void simulate_all(const std::vector<Pattern>& patterns, Exploration& into);

    /// Patterns of the dynamic programme, then changes of one slot at a time from the best.
    void start(Exploration& into);
    void improve(Exploration& into);
    /// Branch and bound over everything; false when it had to stop before the end. Branches that could be
    /// better by less than `gap` are left.
    bool finish(double gap, Exploration& into);
    /// The least cost that a branch which was left could have.
    double left_cost() const { return left_cost_; }
    double plans() const;  ///< of the space

    double ns_per_token(std::int64_t step_ns) const;
    /// ns a token of a step, or bytes: what the objective counts.
    double cost_of(std::int64_t step_ns, std::int64_t allocated_bytes) const;
    /// A cost as the time of a step of this job, or in bytes.
    std::int64_t amount_of(double cost) const;

private:
    struct Branch;
    bool descend(std::size_t slot, Branch& branch, double gap, Exploration& into);
    WrapPlan reference() const;
    Pattern block_pattern() const;
    std::vector<Pattern> with_other_uses(const Pattern& pattern, std::size_t slot) const;
    std::optional<Score> score(const Pattern& pattern) const;
    void keep(const Pattern& pattern, const std::optional<Score>& score, Exploration& into);

    const SearchQuestion& question_;
    const Space& space_;
    std::size_t index_;
    TrainingJob job_;
    Evaluation about_;
    StepBound bound_;
    std::map<Pattern, std::optional<std::size_t>> known_;  ///< what Exploration::found() has of it
    double left_cost_ = std::numeric_limits<double>::infinity();
};

}  // namespace fsdplan
