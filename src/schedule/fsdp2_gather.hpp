#pragma once

#include <cstdint>
#include <vector>

#include "schedule/fsdp2_group.hpp"

// How fully_shard's parameters get whole and go back to shards.
// Source: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py of PyTorch 2.13.
namespace fsdplan::fsdp2 {

/// Of the groups of one model, which share their streams.
class Gathers {
public:
    Gathers(const TrainingJob& job, Emitter& emit);

    /// Starts a gather on the streams that the group's training state calls for, unless there is one or the
    /// parameters are whole.
    void unshard(Group& g, bool async, bool prefetched = false);
    /// Copies out what has been started.
    void wait_for_unshard(Group& g);
    /// Back to shards, or after forward to slices of smaller groups, as the group's settings say.
    void reshard(Group& g);
    /// Starts a gather as if the group were training like `as`.
    void prefetch(Group& g, Group::Training as);

    /// The forward of the root ends.
    void end_forward();
    /// Backward ends and the group's parameters have been gathered for nothing.
    void drop_pending(Group& g);
    /// After that of every group.
    void release_stray();

private:
    void copy_in(Group& g, std::int32_t input, Stream copies);
    void copy_out(Group& g);
    void to_post_forward(Group& g);
    void gather_streams_wait(std::int32_t event);

    const TrainingJob& job_;
    const TorchBehaviour& torch_;
    Emitter& emit_;
    std::int32_t gather_state_ = -1;  // buffer that the last copy-out left behind
    std::int32_t gather_state_event_ = -1;
    std::vector<std::int32_t> stray_;  // buffers of gathers for nothing
};

}  // namespace fsdplan::fsdp2
