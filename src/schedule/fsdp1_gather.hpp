#pragma once

#include <cstdint>
#include <deque>

#include "schedule/fsdp1_handle.hpp"

// How a flat parameter gets whole and goes back to its shard.
// Source: _unshard and _reshard, torch/distributed/fsdp/_runtime_utils.py, and FlatParamHandle of PyTorch
// 2.13.
namespace fsdplan::fsdp1 {

/// Of the handles of one model, among whose gathers the rate limiter counts.
class Gathers {
public:
    explicit Gathers(TrainingLoop& loop);

    void unshard(Handle& h, bool prefetched = false);
    /// unshard() before the unit's turn, with the handle in state `as`.
    void prefetch(Handle& h, Handle::State as);
    /// `frees`: the whole parameter goes. `current`: the stream whose work may still read it.
    void reshard(Handle& h, bool frees, Stream current = Stream::compute);
    /// Records new views of the flat parameter, through which backward will go.
    void add_split(Handle& h);

private:
    bool pre_unshard(const Handle& h, bool needs_gather);
    void to_device(const Handle& h);
    void limit();
    void use_unsharded(Handle& h);

    const TrainingJob& job_;
    TrainingLoop& loop_;
    Emitter& emit_;
    std::deque<std::int32_t> free_events_;
};

}  // namespace fsdplan::fsdp1
