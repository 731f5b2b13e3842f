#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/training_loop.hpp"

// Parameter groups of fully_shard.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_param.py of PyTorch 2.13.
namespace fsdplan::fsdp2 {

// Streams by the names that FSDP2 gives them.
constexpr Stream copy_in_stream = Stream::pre_gather;
constexpr Stream gather_stream = Stream::gather;
constexpr Stream reduce_scatter_stream = Stream::reduce;

/// A parameter of a group: what a rank stores of it, its buffers and the gradients that it has.
struct Member {
    TensorIndex tensor{};
    std::int64_t numel = 0;
    std::int64_t bytes = 0;         // of them, gathered
    std::int64_t padded_numel = 0;  // of the shard that every rank stores
    std::int64_t owned_numel = 0;   // of this rank, without padding
    bool trainable = false;
    bool along_rows = true;  // sharded on dimension 0
    DType orig{};
    DType gather{};
    std::int32_t shard = -1;
    std::int32_t unsharded = -1;
    std::int32_t staging = -1;             // copy-out of other dimensions goes through it
    std::int32_t post_forward_shard = -1;  // slice of a smaller group
    std::vector<std::int32_t> post_forward_shards;
    std::int32_t gradient = -1;     // .grad of the unsharded parameter
    std::int32_t incoming = -1;     // what arrives while there is one already
    std::int32_t kept = -1;         // the buffer of .grad: gradient, or accumulated where that widens
    std::int32_t accumulated = -1;  // unsharded_accumulated_grad, in the reduce dtype
    std::int32_t rearranged = -1;   // gradient with the sharded dimension in front
    bool has_gradient = false;
    bool has_accumulated = false;
    bool has_sharded_gradient = false;  // since zero_grad
    bool has_states = false;
    std::int32_t accumulator = -1;  // node of its .grad in this graph
};

/// A parameter group with its state.
struct Group {
    enum class Training : std::uint8_t { idle, forward, pre_backward, post_backward };
    enum class Sharded : std::uint8_t { sharded, post_forward, unsharded };

    // What it is.
    std::int32_t unit = -1;
    std::vector<Member> members;
    std::vector<std::int32_t> forward_prefetch;
    std::vector<std::int32_t> backward_prefetch;
    std::optional<double> divide_factor;
    std::int64_t post_forward_ranks = 0;  // after forward to groups of so many ranks; 0: to shards
    std::int64_t gather_numel = 0;        // input of the gather from shards
    std::int64_t gather_bytes = 0;        // its output
    std::int64_t copy_out_bytes = 0;
    std::int64_t staging_numel = 0;  // of the input, cast first

    // Buffers and collectives.
    std::vector<std::int32_t>
        gather_buffers;  // a unit that runs again gathers while its last one still lives
    std::vector<std::int32_t> reduce_buffers;  // inputs and outputs of reductions, reused
    std::int32_t gather_buffer = -1;           // of the gather under way
    std::int32_t gather_input = -1;
    std::int32_t gather_input_slice = -1;  // the same from a slice kept after forward
    std::int32_t sharded_gradient = -1;
    std::int32_t partial = -1;      // reduced inside the shard group only
    std::int32_t held_output = -1;  // input of an all-reduce, kept until the end of backward
    std::int32_t gather = -1;
    std::int32_t gather_post_forward = -1;

    // What it is doing.
    std::int32_t gather_event = -1;
    std::vector<std::int32_t> post_forward_indices;
    Training training = Training::idle;
    Training state_training = Training::idle;  // of the FSDPState, which hooks go by
    Sharded sharded = Sharded::sharded;
    bool pending = false;  // a gather that has not been copied out
    bool pending_async = false;
    bool has_sharded_gradient = false;
    bool ever_gathered = false;

    bool exists = false;   // with parameters
    bool reshards = true;  // after forward
    bool unshards_in_backward = true;
    bool force_sum = false;
    DType gather_dtype{};
    DType staging_dtype{};
    DType orig{};  // of the trainable members
    std::optional<DType> reduce;
};

/// A group for each of the loop's units, as rank number `rank` of a shard group has it.
std::vector<Group> groups_of(TrainingLoop& loop, std::int64_t rank);

/// A buffer of `pool` like `wanted` that is free now; adds one where there is none.
std::int32_t pooled_buffer(Emitter& emit, std::vector<std::int32_t>& pool, const Buffer& wanted);

}  // namespace fsdplan::fsdp2
