#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fsdplan/checkpoint_plan.hpp"
#include "fsdplan/planner.hpp"

// The fastest plan that fits, with a bound on what any other plan could do.
namespace fsdplan {

/// What a search may choose; what it may not stays as the question has it.
struct Freedom {
    bool units = true;
    bool reshard = true;        ///< fsdp2: whether a unit keeps its parameters between forward and backward
    bool mesh = true;           ///< the strategy, and how many ranks share a parameter
    bool checkpointing = true;  ///< of which blocks
    bool optimizer = true;      ///< its implementation: fused where there is one, which never costs more
    bool batch = false;         ///< micro-batch and accumulation of a fixed global batch
    bool prefetch = true;       ///< explicit prefetching of fsdp2, that of forward in fsdp1
};

enum class Objective : std::uint8_t { time, memory };

struct SearchLimits {
    /// Plans that are simulated at most, in operations of their schedules: a limit of work, not of time, so
    /// that the answer is the same everywhere.
    std::int64_t operations = 60'000'000;
    double gap = 0.0;  ///< the search may stop when no plan can be better than by this share
};

/// How far a search has come.
struct SearchProgress {
    std::int64_t simulated = 0;  ///< plans
    std::int64_t work_permille = 0;
    std::optional<std::int64_t> best_step_ns;
    std::int64_t bound_step_ns = 0;
};

struct SearchQuestion {
    /// The policy's units are what the user has now, or the only ones where units are pinned; the first job
    /// is what the search starts from. A global batch is the first job's.
    SweepQuestion question;
    Freedom free;
    Objective objective = Objective::time;
    /// Repeated blocks are treated alike, but for which of them are checkpointed or kept.
    bool fold = true;
    bool check_reserve =
        true;  ///< plans have to fit with what the allocator reserves, not by their allocated peak alone
    /// With a type, plans also have to fit while they save so.
    CheckpointWish saving;
    SearchLimits limits;
    /// Called now and then; false stops the search, which then answers with the best so far.
    std::function<bool(const SearchProgress&)> proceed;
};

/// What is known about all plans of the space.
struct SearchProof {
    /// No plan of the space that allocates at most `limit_bytes` at its peak is better: a step's time (of the
    /// recommended plan's tokens), or bytes when memory is the objective.
    std::int64_t bound = 0;
    /// The budget less what lies outside of the allocator, or less than that where plans that allocate more
    /// would not fit with what the allocator reserves.
    std::int64_t limit_bytes = 0;
    std::int64_t floor_bytes = 0;  ///< no plan of the space allocates less at its peak
    double gap = 0.0;              ///< of the recommended plan: its distance from the bound, relative to that
    std::int64_t best = 0;         ///< the best plan by its allocated peak alone; 0: none
    bool complete =
        false;  ///< every plan was simulated or shown to be no better than `best` by the limit's gap
    bool stopped = false;  ///< by the caller
    std::int64_t simulated = 0;
    std::int64_t settings = 0;         ///< combinations of mesh, checkpointing, batch, …
    std::int64_t settings_pruned = 0;  ///< of them: shown to be no better, or never to fit
    double log10_plans = 0.0;          ///< size of the space
    std::string space;                 ///< in words
};

/// One point of the trade between memory and time.
struct FrontierPoint {
    std::int64_t allocated_bytes = 0;
    double ns_per_token = 0.0;
    std::int64_t step_ns = 0;
    std::string label;
    std::vector<std::pair<std::string, std::string>> settings;  ///< as PlanResult's
};

struct SearchResult {
    Verdict verdict;
    std::vector<TrainingJob> jobs;          ///< of the plans below
    std::optional<PlanResult> recommended;  ///< absent: nothing fits
    std::vector<PlanResult> alternatives;   ///< runners-up of other kinds, best first
    PlanResult current;                     ///< the question's own units and first job
    PlanResult closest;                     ///< what `recommended` is, or else needs least
    /// Of `closest`: what the device waits for in a step, longest first.
    std::vector<std::pair<Cause, std::int64_t>> waits;
    /// Of `closest`; absent for a runtime whose checkpoints are not described.
    std::optional<CheckpointPlan> checkpoint;
    std::vector<FrontierPoint> frontier;  ///< from the smallest to the fastest
    SearchProof proof;
    std::vector<Assumption> assumptions;
};

/// Throws Error(input) for jobs that cannot be.
SearchResult search(const SearchQuestion& question);

/// The user's own settings and nothing else: what they cost, and what would be next.
SearchResult check_plan(const SearchQuestion& question);

/// The same question about other jobs.
SweepQuestion with_jobs(const SweepQuestion& question, std::vector<TrainingJob> jobs);

/// The recommended plan, its alternatives and the current one as the plans of a sweep, for the page that
/// shows those.
SweepResult as_sweep(const SearchResult& result);

}  // namespace fsdplan
