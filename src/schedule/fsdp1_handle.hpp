#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/training_loop.hpp"

// Flat parameters of FullyShardedDataParallel.
// Source: torch/distributed/fsdp/_flat_param.py and _init_utils.py of PyTorch 2.13.
namespace fsdplan::fsdp1 {

// Streams by the names that FSDP1 gives them.
constexpr Stream pre_unshard_stream = Stream::pre_gather;
constexpr Stream unshard_stream = Stream::gather;
constexpr Stream post_backward_stream = Stream::reduce;
/// Where backward works on a flat parameter's gradient: a node of autograd runs on the stream on which
/// forward created it, and unsharding creates the views.
constexpr Stream views_stream = unshard_stream;

/// What a unit's constructor got.
struct Settings {
    Strategy strategy{};
    std::int64_t ranks = 1;  ///< that its flat parameter is cut for
    DType orig{};            ///< as stored
    DType param{};           ///< of gathers and computations
    DType reduce{};
};
/// Throws Error(input) at --policy for a strategy that there is not. The unit has parameters.
Settings settings_of(const Unit& unit, const ModuleTree& tree, const TrainingJob& job);

/// A flat parameter: layout, buffers and the marks that the runtime keeps on its handle.
struct Handle {
    enum class State : std::uint8_t { idle, forward, backward_pre, backward_post };

    std::int32_t unit = -1;
    bool exists = false;  // a unit without parameters has none
    Settings settings;
    bool requires_grad = false;
    std::int64_t numel = 0;
    std::int64_t shard_numel = 0;
    double predivide = 1;  // of the gradients, before and after the reduction
    double postdivide = 1;

    struct Member {
        TensorIndex tensor{};
        std::int64_t numel = 0;
        std::int64_t offset = 0;  // in the flat parameter
        bool trainable = false;
        std::int32_t gradient = -1;    // buffer of its part of the gradient, as autograd computes it
        std::int64_t local_numel = 0;  // of this rank
        bool has_states = false;
    };
    std::vector<Member> members;
    bool has_flat_states = false;  // without use_orig_params

    std::int32_t shard = -1;
    std::int32_t low_precision_shard = -1;
    std::int32_t device_shard = -1;  // offload: the copy on the device
    std::int32_t unsharded = -1;
    std::int32_t flat_gradient = -1;   // being reduced, or kept in no_sync
    std::int32_t fresh_gradient = -1;  // beside a kept one
    std::int32_t cast_gradient = -1;
    std::int32_t padded_gradient = -1;
    std::int32_t reduced = -1;  // output of the reduction, when it is cast or added
    std::int32_t shard_gradient = -1;
    std::int32_t low_precision_gradient = -1;  // keep_low_precision_grads: what is left of it
    std::int32_t host_gradient = -1;           // offload: pinned, allocated in advance
    std::int32_t gather = -1;                  // collectives
    std::int32_t scatter = -1;
    std::int32_t all_reduce = -1;

    State state = State::idle;
    bool gathered = false;        // the unsharded buffer has memory
    bool points_to_shard = true;  // what the flat parameter's data is
    bool skipped_views = false;   // _skipped_use_sharded_views
    bool needs_pre_forward_unshard = false;
    bool needs_pre_backward_unshard = false;
    bool prefetched = false;
    bool ran_pre_backward = false;
    bool has_gradient = false;        // .grad is the unsharded gradient
    bool has_shard_gradient = false;  // _saved_grad_shard or .grad holds the sharded one
    bool ever_reduced = false;        // the optimizer has states
    std::int32_t pre_forward_index = -1;
    std::int32_t post_forward_index = -1;
    std::int32_t split = -1;        // newest node of its views
    std::int32_t accumulator = -1;  // node of the flat parameter's .grad in this graph
    bool hook_registered = false;
    std::int32_t frozen_waits = 0;  // inputs whose gradients the reshard of a frozen unit waits for

    bool sharded() const { return settings.strategy != Strategy::no_shard; }
    bool hybrid() const { return is_hybrid(settings.strategy); }
    bool mixed() const { return settings.param != settings.orig; }
};

/// A handle for each of the loop's units, as `rank` has it; without one that of the rank for which the
/// optimizer keeps most.
std::vector<Handle> handles_of(TrainingLoop& loop, std::optional<std::int64_t> rank);

/// A buffer of one of them.
std::int32_t add_buffer(Emitter& emit, std::int32_t unit, std::int64_t numel, DType dtype, Category category,
                        Stream stream, bool on_host = false);

}  // namespace fsdplan::fsdp1
