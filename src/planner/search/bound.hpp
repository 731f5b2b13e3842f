#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/search/score.hpp"

namespace fsdplan {

/// Units that are decided, of a plan whose other units are not.
struct Decided {
    std::int64_t numel = 0;  ///< of their parameters
    std::int64_t trainable_numel = 0;
    std::int64_t kept_numel = 0;   ///< of them: still gathered at the loss
    std::int64_t again_numel = 0;  ///< of them: gathered a second time for backward
    std::int64_t gather_ns = 0;    ///< of their first gathers
    std::int64_t again_ns = 0;     ///< of the second ones
    std::int64_t reduce_ns = 0;

    void add(const Decided& other, std::int64_t times);
};

/// What no plan of one job can be better than, whatever its units are.
///
/// The step contains the model's own kernels, the copies out of at least one gather of each parameter, the
/// first gather before them and the last reduction and the optimizer behind them. Collectives of one group
/// follow each other, at the best rate that any size reaches; kernels that run meanwhile lose speed. What may
/// stay gathered between forward and backward is limited by the memory that everything else takes at the
/// loss, with it what an integer reshard_after_forward leaves of the rest.
class StepBound {
public:
    /// `reference`: units that the runtime accepts, with everything kept after forward where it can be.
    StepBound(const Evaluation& about, const WrapPlan& reference, const TrainingJob& job);

    /// No step of such a plan that allocates at most `budget_bytes` is shorter.
    std::int64_t step_ns(std::int64_t budget_bytes, const Decided& decided = {}) const;
    /// No such plan's allocated peak is lower: what is alive at some moment beside what belongs to units.
    std::int64_t floor_bytes(const Decided& decided = {}) const;

    /// Of it: what is alive at the loss.
    std::int64_t floor_at_loss_bytes() const { return floor_at_loss_bytes_; }

    /// One unit, gathered and reduced on its own.
    Decided unit(std::int64_t numel, std::int64_t trainable_numel, bool kept) const;

private:
    /// The least time of a collective over sizes: a table with the fastest of each size and all above it.
    struct Curve {
        std::int64_t bytes_per_element = 0;
        std::vector<double> bytes;
        std::vector<std::int64_t> least_ns;
        double best_ns_per_byte = 0.0;

        std::int64_t at_least(std::int64_t numel) const;
        std::int64_t at_best_rate(std::int64_t numel) const;
    };
    Curve curve_of(const Evaluation& about, const Schedule& schedule, CollectiveKind kind,
                   const Placement& group) const;
    /// What is alive at the loss at least.
    std::int64_t at_loss_bytes(const Decided& decided) const;
    void read_work(const Evaluation& about, const Played& played, bool everything_kept);
    void read_ends(const Evaluation& about, const Played& played);
    void read_memory(const Evaluation& about, const Schedule& schedule);

    Curve gather_;
    Curve again_;
    Curve reduce_;
    bool again_in_same_group_ = true;
    std::int64_t left_divisor_ = 0;  ///< what is not kept leaves one part in so many; 0: nothing
    std::int64_t numel_ = 0;
    std::int64_t trainable_numel_ = 0;
    std::int64_t gathers_ = 1;  ///< forward passes of a step
    std::int64_t reductions_ = 1;
    bool gathers_again_ = false;   ///< in full for backward, unless a unit is kept
    std::int64_t kernels_ns_ = 0;  ///< with the copies into reductions
    std::int64_t optimizer_ns_ = 0;
    std::int64_t host_ns_ = 0;
    double copy_ns_per_element_ = 0.0;  ///< out of one gather
    std::int64_t first_gather_ns_ = 0;
    std::int64_t last_reduce_ns_ = 0;
    double lost_share_ = 0.0;               ///< of the time of collectives, by kernels
    std::int64_t floor_bytes_ = 0;          ///< at any moment
    std::int64_t floor_at_loss_bytes_ = 0;  ///< … and where all that is kept after forward is alive too
};

}  // namespace fsdplan
