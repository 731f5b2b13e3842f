#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "schedule/zero_partitions.hpp"

// DeepSpeed ZeRO stage 3: every parameter is cut up on its own and gathered when a module needs it.
namespace fsdplan::zero {

/// What each rank stores of the parameters.
struct Layout3 {
    std::vector<std::int64_t> partition_numel;  ///< by parameter, padded
    std::vector<std::int32_t> persistent;       ///< parameters that stay gathered after their first use
    std::vector<std::vector<std::int32_t>> sub_groups;  ///< one optimizer step each
    std::vector<std::int64_t> sub_group_numel;          ///< sum of their partitions
};
Layout3 layout3(std::span<const Parameter> parameters, const Options& options);

/// Gradients in buckets, as they become ready.
class GradientBucket {
public:
    GradientBucket(std::vector<Parameter> parameters, const Options& options);

    /// What is sent before the gradient of `row` is taken in.
    std::vector<Event> add(std::int32_t row);
    std::vector<Event> flush();

private:
    std::vector<Parameter> parameters_;
    Layout3 layout_;
    Options options_;
    std::vector<std::int32_t> rows_;
    std::int64_t numel_ = 0;
};

/// Everything that initialize() sends.
std::vector<Event> zero3_construction(std::span<const Parameter> parameters, const Options& options);

/// A module with hooks: all that are called, those without parameters too; of a leaf module (one that is
/// fetched as a whole) only itself.
struct Module {
    std::vector<std::int32_t> parameters;  ///< registered directly, tied ones too
    std::vector<std::int32_t> below;       ///< in its whole subtree, its own included
    bool leaf = false;
};

/// A hook that runs before or after a module's forward or backward.
struct Hook {
    std::int32_t module = -1;
    bool enter = true;
    bool backward = false;   ///< during the backward pass
    bool recompute = false;  ///< a forward during the backward pass
};

/// A parameter that another module than its own reads in its forward ("external parameter"). When it is not
/// there at that moment it is gathered alone, and belongs to the reader too from then on.
struct ExternalRead {
    std::size_t hook = 0;  ///< just before this one
    std::int32_t reader = -1;
    std::int32_t parameter = -1;
};

/// Just before hook number `hook` the gradient of `parameter` is complete.
struct GradientReady {
    std::size_t hook = 0;
    std::int32_t parameter = -1;
};

/// One forward and backward of the model.
struct MicroBatch {
    std::vector<Hook> hooks;
    std::vector<ExternalRead> reads;       ///< by hook
    std::vector<GradientReady> gradients;  ///< by hook
};

/// When gradients become ready between the hooks: within the last backward of a module that owns them, in the
/// order `ready` where that leaves a choice.
std::vector<GradientReady> place_gradients(std::span<const Module> modules, std::span<const Hook> hooks,
                                           std::span<const std::int32_t> ready);

/// Decides what is gathered when, as DeepSpeed's coordinator does: it records the order of modules in the
/// first pass and prefetches by it from then on.
class Coordinator {
public:
    Coordinator(std::vector<Parameter> parameters, std::vector<Module> modules, const Options& options);

    void begin_forward(std::vector<Event>& out);
    void hook(const Hook& hook, std::vector<Event>& out);
    void read(const ExternalRead& read, std::vector<Event>& out);
    void end_backward();
    /// Before the optimizer steps: every parameter goes back to its partition.
    void partition_all();
    /// After it: those that are to stay are gathered.
    void gather_persistent(std::vector<Event>& out);

    /// Whether a parameter has its full size now, or will when what is under way arrives.
    bool is_gathered(std::int32_t parameter) const {
        return status_[static_cast<std::size_t>(parameter)] != Status::away;
    }
    /// Elements that are gathered by the coordinator's own count.
    std::int64_t live_numel() const { return live_numel_; }

private:
    enum class Status : std::uint8_t { away, in_flight, here };
    enum class Trace : std::uint8_t { none, recording, complete };
    struct Use {
        std::int32_t parameter;
        std::int64_t step;
    };

    std::vector<std::int32_t> parameters_of(std::int32_t module, bool whole_subtree) const;
    std::vector<std::int32_t> own(std::int32_t module) const;
    void enter(const Hook& hook, std::vector<Event>& out);
    void leave(const Hook& hook);
    void gather(std::vector<std::int32_t> rows, const Hook& hook, bool prefetched, std::vector<Event>& out);
    void drop_used(const std::vector<std::int32_t>& mine);
    void prefetch(const Hook& hook, std::vector<Event>& out);
    void wait_for(std::int32_t parameter);
    void release(std::int32_t parameter);
    void check_trace(std::size_t length, std::vector<Event>& out) const;
    const std::vector<std::int32_t>& released_after(std::int32_t module);

    std::vector<Parameter> parameters_;
    std::vector<Module> modules_;
    Options options_;
    Layout3 layout_;
    std::vector<char> persistent_;                     // by parameter
    std::vector<std::vector<std::int32_t>> external_;  // by module

    std::vector<Status> status_;                  // by parameter
    std::vector<std::int64_t> flight_;            // set that it travels in; -1: nobody waits for it
    std::vector<std::set<std::int32_t>> active_;  // modules that are using it
    std::int64_t flights_ = 0;

    Trace trace_ = Trace::none;
    std::vector<std::int32_t> order_;             // modules as entered
    std::vector<Use> uses_;                       // parameters in that order
    std::size_t next_use_ = 0;                    // first that was neither used nor prefetched
    std::vector<std::int64_t> last_fetched_for_;  // step, by parameter
    std::int64_t step_ = 0;
    std::int64_t live_numel_ = 0;
    std::map<std::pair<std::int32_t, std::int64_t>, std::vector<std::int32_t>> release_cache_;

    std::vector<std::int32_t> active_backward_;                  // modules in their backward, as entered
    std::map<std::int32_t, std::set<std::int32_t>> recomputed_;  // frozen parameters that a backward holds
};

/// `iterations` of a training whose micro-batches are all alike.
std::vector<std::vector<Event>> zero3_training(std::span<const Parameter> parameters,
                                               std::span<const Module> modules, const Options& options,
                                               const MicroBatch& micro_batch, std::int64_t iterations);

}  // namespace fsdplan::zero
