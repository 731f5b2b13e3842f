#include "schedule/fsdp2_gather.hpp"

#include <utility>

namespace fsdplan::fsdp2 {

Gathers::Gathers(const TrainingJob& job, Emitter& emit)
    : job_(job), torch_(torch_behaviour(job.torch)), emit_(emit) {}

void Gathers::unshard(Group& g, bool async, bool prefetched) {
    if (g.pending || g.sharded == Group::Sharded::unsharded) {
        return;
    }
    if (!g.unshards_in_backward && g.training == Group::Training::pre_backward) {
        return;
    }
    g.pending = true;
    g.pending_async = async;
    if (job_.mesh.shard == 1) {
        return;
    }
    const bool separate =
        !async && (g.training == Group::Training::forward || g.training == Group::Training::pre_backward);
    const Stream copies = separate ? copy_in_stream : Stream::compute;
    const Stream gathers = separate ? gather_stream : Stream::compute;
    const bool from_slice = g.sharded == Group::Sharded::post_forward;
    if (from_slice) {
        emit_.after(copies, Stream::compute);
    }
    const std::int32_t input = from_slice ? g.gather_input_slice : g.gather_input;
    copy_in(g, input, copies);
    if (copies != gathers) {
        emit_.after(gathers, copies);
    }
    emit_.issue(from_slice ? g.gather_post_forward : g.gather, g.unit, gathers, prefetched);
    g.gather_event = emit_.record(gathers);
    emit_.release(input);
    g.ever_gathered = true;
}

void Gathers::copy_in(Group& g, std::int32_t input, Stream copies) {
    const std::int64_t bytes = bytes_of(g.gather_numel, g.gather_dtype).count;
    if (job_.offload) {
        emit_.copy(bytes, g.unit, copies, OpKind::to_device);
    }
    // From a slice the cast has been done, but the copy is made all the same.
    emit_.allocate(input);
    emit_.copy(emit_.at(input).bytes, g.unit, copies);
    g.gather_buffer = pooled_buffer(
        emit_, g.gather_buffers,
        {.bytes = g.gather_bytes, .category = Category::gather_buffer, .stream = copies, .unit = g.unit});
    emit_.allocate(g.gather_buffer);
    emit_.copy(bytes, g.unit, copies);
}

void Gathers::wait_for_unshard(Group& g) {
    if (!g.pending) {
        return;
    }
    const bool in_forward = g.training == Group::Training::forward;
    std::int32_t left_behind = -1;
    if (in_forward && gather_state_ >= 0) {
        gather_streams_wait(gather_state_event_);
        std::swap(left_behind, gather_state_);
        if (torch_.releases_gather_before_copy_out) {
            emit_.release(left_behind);
        }
    }
    if (job_.mesh.shard > 1) {
        emit_.wait(Stream::compute, g.gather_event);
    }
    copy_out(g);
    const bool held = !g.pending_async && in_forward && job_.mesh.shard > 1;
    const std::int32_t copied_out = emit_.record(Stream::compute);
    if (held) {
        gather_state_ = g.gather_buffer;
        gather_state_event_ = copied_out;
    } else {
        gather_streams_wait(copied_out);
        emit_.release(g.gather_buffer);
    }
    // A local variable keeps it so long.
    emit_.release(left_behind);
    g.pending = false;
    emit_.mark(Mark::copy_out, g.unit);
}

void Gathers::copy_out(Group& g) {
    for (const Member& m : g.members) {
        emit_.allocate(m.unsharded);
        if (m.staging >= 0) {
            emit_.allocate(m.staging);
        }
    }
    emit_.copy(g.copy_out_bytes, g.unit, Stream::compute);
    for (const Member& m : g.members) {
        emit_.release(m.staging);
        if (g.sharded == Group::Sharded::post_forward) {
            emit_.release(m.post_forward_shard);
        }
    }
    g.sharded = Group::Sharded::unsharded;
}

void Gathers::gather_streams_wait(std::int32_t event) {
    emit_.wait(copy_in_stream, event);
    emit_.wait(gather_stream, event);
}

// In forward a gather's buffer lives until the next unit is about to copy out.
void Gathers::end_forward() {
    if (gather_state_ >= 0) {
        gather_streams_wait(gather_state_event_);
        emit_.release(gather_state_);
        gather_state_ = -1;
    }
}

void Gathers::reshard(Group& g) {
    if (g.training == Group::Training::forward) {
        if (!g.reshards) {
            return;
        }
        if (g.post_forward_ranks > 0) {
            to_post_forward(g);
            return;
        }
    }
    if (g.sharded == Group::Sharded::sharded) {
        return;
    }
    for (const Member& m : g.members) {
        emit_.release(m.unsharded);
    }
    g.sharded = Group::Sharded::sharded;
    emit_.mark(Mark::reshard, g.unit, 1);
}

void Gathers::to_post_forward(Group& g) {
    if (g.sharded == Group::Sharded::post_forward) {
        return;
    }
    for (Member& m : g.members) {
        // A slice that no backward has gathered is replaced.
        const std::int32_t old = m.post_forward_shard;
        m.post_forward_shard = pooled_buffer(emit_, m.post_forward_shards, emit_.at(old));
        emit_.allocate(m.post_forward_shard);
        if (m.post_forward_shard != old) {
            emit_.release(old);
        }
        emit_.release(m.unsharded);
    }
    g.sharded = Group::Sharded::post_forward;
    emit_.mark(Mark::reshard_post_forward, g.unit, 1);
}

void Gathers::prefetch(Group& g, Group::Training as) {
    if (!g.exists) {
        return;
    }
    const Group::Training before = g.training;
    g.training = as;
    unshard(g, job_.fsdp2.unshard_async_op, true);
    g.training = before;
}

void Gathers::drop_pending(Group& g) {
    if (!g.pending) {
        return;
    }
    if (torch_.keeps_stray_gathers) {
        stray_.push_back(g.gather_buffer);
    } else {
        emit_.release(g.gather_buffer);
    }
    g.pending = false;
}

void Gathers::release_stray() {
    for (const std::int32_t buffer : stray_) {
        emit_.release(buffer);
    }
    stray_.clear();
}

}  // namespace fsdplan::fsdp2
