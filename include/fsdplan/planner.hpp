#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fsdplan/base.hpp"
#include "fsdplan/cost.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/schedule.hpp"
#include "fsdplan/simulate.hpp"
#include "fsdplan/wrap.hpp"

// Plans with what they cost, compared.
namespace fsdplan {

/// Everything that one question is about. The model and its tree must outlive it.
struct SweepQuestion {
    const ModelGraph& model;
    const ModuleTree& tree;
    PolicySpec policy;             ///< recursive with a member "size" when thresholds are swept
    bool sweep_thresholds = true;  ///< every distinct result of min_num_params; false: the policy as it is
    /// Further arguments of the wrapper; what a job decides (world size, precision, use_orig_params) is
    /// overwritten by it.
    WrapOptions wrap;
    std::vector<TrainingJob> jobs;  ///< one for each combination of the options that were given as lists
    Cluster cluster;
};

/// One line of the memory table, at the moment at which the plan's memory peaks.
struct MemoryTerm {
    std::string name;                ///< "parameter_shards", "activations", …
    Estimate bytes;                  ///< low = value = high when exact
    std::int64_t largest_bytes = 0;  ///< the most that this line reaches at any moment of the step
    bool exact = false;
    std::string note;
};

struct StrategyTraffic {
    std::string strategy;
    std::int64_t sent_bytes = 0;  ///< by one rank in one step
    std::vector<Collective> collectives;
};

struct PlanCode {
    std::string fsdp1;  ///< empty: cannot be said in a few lines
    std::string fsdp2;
};

/// Where in a step memory peaks.
enum class Phase : std::uint8_t {
    forward,
    loss,  ///< forward is over, the loss is computed
    backward,
    reduce,  ///< gradients are being reduced
    step,    ///< the optimizer runs
};
std::string_view name(Phase phase);

struct PlanResult {
    std::int64_t threshold_low = 0;
    std::optional<std::int64_t> threshold_high;  ///< absent: no upper end
    std::string label;                           ///< in words
    std::size_t job = 0;                         ///< index into SweepQuestion::jobs
    /// Values of the options that were given as lists: (option without dashes, value).
    std::vector<std::pair<std::string, std::string>> settings;

    WrapPlan wrap;
    std::int64_t units = 0;  ///< instances, root and empty ones included
    std::int64_t units_with_parameters = 0;
    std::int32_t largest_unit = -1;  ///< index into wrap.units; -1 when there is no unit
    std::int64_t largest_unit_numel = 0;
    std::int64_t root_numel = 0;
    std::vector<std::pair<std::string, std::int64_t>> units_by_class;  ///< of units with parameters

    std::vector<Collective> collectives;  ///< of one step, equal ones counted together
    std::int64_t sent_bytes = 0;          ///< by one rank in one step

    Phase peak_phase{};
    std::string peak_unit;  ///< path of the unit at work then
    std::vector<MemoryTerm> memory;
    std::int64_t allocated_bytes = 0;
    std::int64_t reserved_bytes = 0;
    Estimate process_bytes;  ///< with the context and what NCCL takes

    Estimate step_ns;
    Estimate exposed_ns;  ///< of them: waiting for collectives
    std::vector<StrategyTraffic> strategies;

    std::optional<bool> fits;     ///< absent: the budget lies inside the interval
    std::int64_t left_bytes = 0;  ///< of the budget, by the best guess
    PlanCode code;

    /// False when PyTorch would refuse these units.
    bool runs() const;
};

/// One value that was not given, or given, with where it comes from.
struct Assumption {
    std::string name;
    std::string value;
    std::string from;  ///< "default", "--gpu", "config", "model", …
    std::string note;
};

struct Change {
    std::string change;  ///< what to write on the command line
    std::string effect;  ///< what it does, from a second evaluation
};

struct Verdict {
    std::optional<bool> fits;
    std::int64_t left_bytes = 0;
    std::string decided_by;
    std::string text;
    std::vector<Change> next;
};

/// "parameter_shards" as text shows it.
std::string shown_term(std::string_view name);

struct SweepResult {
    Verdict verdict;
    std::optional<std::size_t> recommended;  ///< the fastest plan that fits with certainty
    std::size_t shown = 0;                   ///< the plan that the verdict is about
    std::vector<PlanResult> plans;           ///< from the smallest thresholds to the largest, job by job
    std::vector<Assumption> assumptions;  ///< of the estimates; those of the command line are added outside
};

/// The mesh that a strategy has on so many GPUs unless the user says otherwise: hybrid ones shard inside a
/// node and replicate across nodes.
Mesh usual_mesh(const RuntimeInfo& runtime, Strategy strategy, const Cluster& cluster);

/// Evaluates every plan of the question.
/// Throws Error(input) for jobs that cannot be and when there are more than 10,000 plans.
SweepResult sweep(const SweepQuestion& question);

/// One plan under one job, without the comparisons and the code of a sweep.
PlanResult evaluate(const SweepQuestion& question, const WrapPlan& plan, const TrainingJob& job);

/// One plan, one job, played in full on the cluster as it is: with its budget, and with what happens when
/// that is not enough.
struct StepResult {
    WrapPlan wrap;
    Schedule schedule;
    Run run;
    AllocatorLog log;
    PlanResult plan;  ///< the same plan where memory has no end: what it would need
    std::vector<Assumption> assumptions;
};

struct StepOptions {
    bool contention = false;  ///< kernels and collectives slow each other down: usual_contention()
    AllocatorOptions allocator;
};

/// The question's policy under its only job. Throws Error(input) for a job that cannot be.
StepResult simulate_step(const SweepQuestion& question, const StepOptions& options = {});

/// The units of a policy as the job's runtime would have them: policies of FSDP1 become fully_shard calls for
/// FSDP2, and DDP has one unit.
WrapPlan units_of(const SweepQuestion& question, const TrainingJob& job);

}  // namespace fsdplan
