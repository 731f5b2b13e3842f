#include "planner/search/explore.hpp"

#include <algorithm>
#include <cmath>

#include "planner/search/fronts.hpp"
#include "planner/search/in_parallel.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t most_patterns = 12;    // that a setting starts from
constexpr double settings_to_afford = 50.0;  // with so many patterns each

/// PyTorch takes the plan, and trains what it would train without units: ties stay ties.
bool is_sound(const WrapPlan& plan) {
    return std::ranges::none_of(plan.diagnostics, [](const Diagnostic& d) {
        return d.severity != Severity::warning || d.rule == WrapRule::tie_broken ||
               d.rule == WrapRule::tied_across_units || d.rule == WrapRule::not_called_through_unit;
    });
}

}  // namespace

void sort_by_cost(std::vector<const Found*>& plans) {
    std::ranges::stable_sort(plans, [](const Found* a, const Found* b) {
        return std::pair(a->cost, a->score.allocated_bytes) < std::pair(b->cost, b->score.allocated_bytes);
    });
}

std::vector<const Found*> Exploration::fitting() const {
    std::vector<const Found*> out;
    for (const Found& one : found_) {
        if (fits(one)) {
            out.push_back(&one);
        }
    }
    sort_by_cost(out);
    return out;
}

void Exploration::add(Found one) {
    operations_ += one.score.operations;
    found_.push_back(std::move(one));
    if (fits(found_.back()) && found_.back().cost < best_cost()) {
        best_ = found_.size() - 1;
    }
}

void Exploration::limit_to(std::int64_t allocated_bytes) {
    limit_bytes_ = allocated_bytes;
    best_.reset();
    for (std::size_t i = 0; i < found_.size(); ++i) {
        if (fits(found_[i]) && found_[i].cost < best_cost()) {
            best_ = i;
        }
    }
}

double Exploration::operations_each() const {
    return found_.empty() ? 0.0 : static_cast<double>(operations_) / static_cast<double>(found_.size());
}

bool Exploration::can_afford(double plans) const {
    return plans * operations_each() <= static_cast<double>(allowed_ - operations_);
}

double Exploration::affordable_plans() const {
    return static_cast<double>(question_.limits.operations) / std::max(1.0, operations_each());
}

void Exploration::spend(double part) {
    const std::int64_t left = std::max<std::int64_t>(0, question_.limits.operations - operations_);
    allowed_ = operations_ + static_cast<std::int64_t>(part * static_cast<double>(left));
}

bool Exploration::may_go_on(std::int64_t bound_ns) {
    if (stopped_ || operations_ >= allowed_) {
        return false;
    }
    if (question_.proceed) {
        SearchProgress progress{
            .simulated = static_cast<std::int64_t>(found_.size()),
            .work_permille = operations_ * 1000 / std::max<std::int64_t>(1, question_.limits.operations),
            .best_step_ns = {},
            .bound_step_ns = bound_ns};
        if (best_) {
            progress.best_step_ns = found_[*best_].score.step_ns;
        }
        stopped_ = !question_.proceed(progress);
    }
    return !stopped_;
}

Setting::Setting(const SearchQuestion& question, const Space& space, std::size_t index, TrainingJob job,
                 Evaluation about)
    : question_(question),
      space_(space),
      index_(index),
      job_(std::move(job)),
      about_(std::move(about)),
      bound_(about_, reference(), job_) {}

/// The user's own units, or where PyTorch refuses them the whole model as one.
WrapPlan Setting::reference() const {
    WrapPlan plan = units_of(question_.question, job_);
    return is_sound(plan) ? plan : plan_of(Pattern(space_.slots.size(), 0));
}

WrapPlan Setting::plan_of(const Pattern& pattern) const {
    if (!question_.free.units) {
        return units_of(question_.question, job_);
    }
    SweepQuestion drawn = question_.question;
    drawn.policy = policy_of(question_.question.tree, space_, pattern, runtime(job_.runtime).wraps_by_policy);
    return units_of(drawn, job_);
}

double Setting::ns_per_token(std::int64_t step_ns) const {
    return static_cast<double>(step_ns) / static_cast<double>(job_.tokens() * job_.accumulate);
}

double Setting::cost_of(std::int64_t step_ns, std::int64_t allocated_bytes) const {
    return question_.objective == Objective::memory ? static_cast<double>(allocated_bytes)
                                                    : ns_per_token(step_ns);
}

std::int64_t Setting::amount_of(double cost) const {
    return std::llround(question_.objective == Objective::memory
                            ? cost
                            : cost * static_cast<double>(job_.tokens() * job_.accumulate));
}

double Setting::least_cost(std::int64_t limit_bytes, const Decided& decided) const {
    const std::int64_t floor = bound_.floor_bytes(decided);
    return floor > limit_bytes ? std::numeric_limits<double>::infinity()
                               : cost_of(bound_.step_ns(limit_bytes, decided), floor);
}

std::optional<Score> Setting::score(const Pattern& pattern) const {
    if (overlaps(space_, pattern)) {
        return std::nullopt;
    }
    const WrapPlan plan = plan_of(pattern);
    return is_sound(plan) ? std::optional(score_of(about_, plan, job_)) : std::nullopt;
}

void Setting::keep(const Pattern& pattern, const std::optional<Score>& score, Exploration& into) {
    std::optional<std::size_t>& known = known_[pattern];
    if (score && !known) {
        known = into.found().size();
        into.add({.setting = index_,
                  .pattern = pattern,
                  .score = *score,
                  .cost = cost_of(score->step_ns, score->allocated_bytes)});
    }
}

const Found* Setting::simulate(const Pattern& pattern, Exploration& into) {
    if (!known_.contains(pattern)) {
        keep(pattern, score(pattern), into);
    }
    const std::optional<std::size_t>& known = known_[pattern];
    return known ? &into.found()[*known] : nullptr;
}

void Setting::simulate_all(const std::vector<Pattern>& patterns, Exploration& into) {
    std::vector<Pattern> open;
    for (const Pattern& pattern : patterns) {
        if (!known_.contains(pattern) && std::ranges::find(open, pattern) == open.end()) {
            open.push_back(pattern);
        }
    }
    std::vector<std::optional<Score>> scores(open.size());
    in_parallel(open.size(), [&](std::size_t i) { scores[i] = score(open[i]); });
    for (std::size_t i = 0; i < open.size(); ++i) {
        keep(open[i], scores[i], into);
    }
}

double Setting::plans() const {
    double product = 1.0;
    for (const std::vector<Use>& uses : space_.uses) {
        product *= static_cast<double>(uses.size());
    }
    return product;
}

void Setting::start(Exploration& into) {
    std::int64_t in_slots = 0;
    for (const Slot& slot : space_.slots) {
        in_slots += slot.together ? 0 : slot.own_numel * static_cast<std::int64_t>(slot.modules.size());
    }
    const std::int64_t root = about_.tree.numel.front() - in_slots;
    const std::int64_t hooks_ns = 4 * HostCosts{}.unit_hook_ns.value / 2;
    const UnitCost cost = [&](std::int64_t numel, std::int64_t trainable) {
        const Decided unit = bound_.unit(numel, trainable, false);
        return job_.accumulate * (unit.gather_ns + unit.again_ns + unit.reduce_ns + hooks_ns);
    };
    const std::vector<Pattern> patterns = pareto_patterns(space_, root, cost, most_patterns);
    // The smallest units first: when they take too much, large ones do too.
    const std::vector<Pattern> least{patterns.back(), block_pattern()};
    simulate_all(least, into);
    const auto fits = [&](const Pattern& pattern) {
        const Found* found = simulate(pattern, into);
        return found != nullptr && into.fits(*found);
    };
    if (std::ranges::any_of(least, fits)) {
        // Of a large model no more than leaves work for the other settings.
        const double affordable = std::max(1.0, into.affordable_plans() / settings_to_afford);
        const auto most = std::min(patterns.size(), static_cast<std::size_t>(affordable));
        std::vector<Pattern> some;
        for (std::size_t i = 0; i < most; ++i) {
            some.push_back(patterns[i * patterns.size() / most]);
        }
        simulate_all(some, into);
    }
}

/// One unit for each repeated block: what most people have.
Pattern Setting::block_pattern() const {
    Pattern pattern(space_.slots.size(), 0);
    for (std::size_t s = 0; s < space_.slots.size(); ++s) {
        pattern[s] = space_.slots[s].block ? 1 : 0;
    }
    return pattern;
}

void Setting::improve(Exploration& into) {
    // What does not fit is the better the less it needs.
    const auto key = [&](const Found& one) {
        return std::pair(into.fits(one) ? 0 : one.score.allocated_bytes, one.cost);
    };
    const Found* best = nullptr;
    for (const Found& one : into.found()) {
        if (one.setting == index_ && (best == nullptr || key(one) < key(*best))) {
            best = &one;
        }
    }
    if (best == nullptr) {
        return;
    }
    Pattern here = best->pattern;
    auto value = key(*best);
    for (bool better = true; better;) {
        better = false;
        for (std::size_t s = 0; s < space_.slots.size(); ++s) {
            if (!into.may_go_on(bound_.step_ns(into.limit()))) {
                return;
            }
            const std::vector<Pattern> others = with_other_uses(here, s);
            simulate_all(others, into);
            for (const Pattern& other : others) {
                const Found* found = simulate(other, into);
                if (found != nullptr && key(*found) < value) {
                    here = other;
                    value = key(*found);
                    better = true;
                }
            }
        }
    }
}

std::vector<Pattern> Setting::with_other_uses(const Pattern& pattern, std::size_t slot) const {
    std::vector<Pattern> out;
    for (std::size_t u = 0; u < space_.uses[slot].size(); ++u) {
        if (u != pattern[slot]) {
            Pattern other = pattern;
            other[slot] = static_cast<UseIndex>(u);
            for (const std::int32_t o : space_.slots[slot].overlaps) {
                other[static_cast<std::size_t>(o)] = u == 0 ? pattern[static_cast<std::size_t>(o)] : 0;
            }
            out.push_back(std::move(other));
        }
    }
    return out;
}

/// Where branch and bound stands: slots in front of the next one are decided.
struct Setting::Branch {
    Pattern pattern;
    Decided decided;
    std::vector<std::int64_t> left;  ///< by slot, of one instance: what inner slots have left it
    std::vector<std::int64_t> left_trainable;
};

bool Setting::finish(double gap, Exploration& into) {
    Branch branch{.pattern = Pattern(space_.slots.size(), 0)};
    for (const Slot& slot : space_.slots) {
        branch.left.push_back(slot.own_numel);
        branch.left_trainable.push_back(slot.own_trainable_numel);
    }
    left_cost_ = std::numeric_limits<double>::infinity();
    return descend(0, branch, gap, into);
}

bool Setting::descend(std::size_t slot, Branch& branch, double gap, Exploration& into) {
    const double least = least_cost(into.limit(), branch.decided);
    if (least >= into.best_cost() * (1.0 - gap)) {
        left_cost_ = std::min(left_cost_, least);
        return true;
    }
    if (!into.may_go_on(bound_.step_ns(into.limit()))) {
        left_cost_ = std::min(left_cost_, least);
        return false;
    }
    if (slot == space_.slots.size()) {
        simulate(branch.pattern, into);
        return true;
    }
    const Slot& here = space_.slots[slot];
    const bool taken = std::ranges::any_of(here.overlaps, [&](std::int32_t o) {
        const auto other = static_cast<std::size_t>(o);
        return other < slot && branch.pattern[other] != 0;
    });
    const auto instances = static_cast<std::int64_t>(here.together ? 1 : here.modules.size());
    for (std::size_t u = 0; u < space_.uses[slot].size(); ++u) {
        const Use& use = space_.uses[slot][u];
        if (use.neighbours > 0 && taken) {
            continue;
        }
        Branch next = branch;
        next.pattern[slot] = static_cast<UseIndex>(u);
        if (use.neighbours == 0) {
            if (here.around >= 0 && !here.together && !taken) {
                const auto around = static_cast<std::size_t>(here.around);
                const std::int64_t each =
                    instances / static_cast<std::int64_t>(space_.slots[around].modules.size());
                next.left[around] += each * branch.left[slot];
                next.left_trainable[around] += each * branch.left_trainable[slot];
            }
        } else {
            // The last unit of neighbours may be smaller: counted with the full ones it would be too much.
            const std::int64_t full = instances / use.neighbours;
            const std::int64_t kept = std::max<std::int64_t>(0, use.kept - (space_.units(slot, use) - full));
            const std::int64_t numel = branch.left[slot] * use.neighbours;
            const std::int64_t trainable = branch.left_trainable[slot] * use.neighbours;
            next.decided.add(bound_.unit(numel, trainable, false), full - kept);
            next.decided.add(bound_.unit(numel, trainable, true), kept);
        }
        if (!descend(slot + 1, next, gap, into)) {
            return false;
        }
    }
    return true;
}

}  // namespace fsdplan
