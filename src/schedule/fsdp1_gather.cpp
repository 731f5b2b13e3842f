#include "schedule/fsdp1_gather.hpp"

namespace fsdplan::fsdp1 {

Gathers::Gathers(TrainingLoop& loop) : job_(loop.job), loop_(loop), emit_(loop.emit) {}

void Gathers::unshard(Handle& h, bool prefetched) {
    const bool needs_gather = h.sharded() && !h.gathered;
    if (pre_unshard(h, needs_gather)) {
        emit_.after(unshard_stream, pre_unshard_stream);
    }
    limit();
    if (needs_gather) {
        emit_.allocate(h.unsharded);
        h.gathered = true;
        emit_.issue(h.gather, h.unit, unshard_stream, prefetched);
    }
    if (h.sharded() && h.mixed() && emit_.is_live(h.low_precision_shard)) {
        emit_.use(h.low_precision_shard, unshard_stream);
        emit_.free(h.low_precision_shard);
    }
    emit_.release(h.device_shard);
    use_unsharded(h);
}

// The shard on the device and in the dtype of the gather. False where it is that already.
bool Gathers::pre_unshard(const Handle& h, bool needs_gather) {
    if (h.mixed() && (!h.sharded() || needs_gather || job_.offload)) {
        if (!emit_.is_live(h.low_precision_shard)) {
            emit_.allocate(h.low_precision_shard);
        }
        if (job_.offload) {
            to_device(h);
        }
        emit_.copy(bytes_of(h.shard_numel, h.settings.orig).count, h.unit, pre_unshard_stream);
        emit_.release(h.device_shard);
        return true;
    }
    if (job_.offload) {
        to_device(h);
        return true;
    }
    return false;
}

void Gathers::to_device(const Handle& h) {
    emit_.allocate(h.device_shard);
    emit_.copy(bytes_of(h.shard_numel, h.settings.orig).count, h.unit, pre_unshard_stream, OpKind::to_device);
}

// The rate limiter: the host waits for the oldest of two freed units that the device has not left behind.
void Gathers::limit() {
    constexpr std::size_t most_in_flight = 2;
    if (job_.limit_all_gathers && free_events_.size() >= most_in_flight) {
        emit_.block(free_events_.front());
        free_events_.pop_front();
    }
}

// New views of the flat parameter. Backward goes through those that a computation used.
void Gathers::use_unsharded(Handle& h) {
    h.points_to_shard = !h.sharded() && !h.mixed();
    const bool in_forward = h.state == Handle::State::forward;
    const bool in_pre_backward = h.state == Handle::State::backward_pre;
    if (job_.use_orig_params) {
        if (h.skipped_views && in_pre_backward) {
            return;
        }
        if (in_forward || in_pre_backward) {
            h.skipped_views = false;
            add_split(h);
        }
    } else if (in_forward) {
        add_split(h);
    }
}

void Gathers::add_split(Handle& h) {
    if (!h.requires_grad) {
        return;
    }
    h.split = loop_.tape.add(Tape::Kind::split, h.unit);
    if (h.accumulator < 0) {
        h.accumulator = loop_.tape.add(Tape::Kind::accumulate, h.unit);
    }
    loop_.tape.edge(h.split, h.accumulator);
}

void Gathers::prefetch(Handle& h, Handle::State as) {
    const Handle::State state = h.state;
    h.state = as;
    unshard(h, true);
    h.state = state;
    h.prefetched = true;
}

void Gathers::reshard(Handle& h, bool frees, Stream current) {
    h.points_to_shard = true;
    h.skipped_views = false;
    if (frees && h.gathered) {
        emit_.use(h.unsharded, current);
        emit_.free(h.unsharded);
        h.gathered = false;
    }
    if (frees && job_.limit_all_gathers) {
        free_events_.push_back(emit_.record(current));
    }
    if (!h.sharded() && h.mixed()) {
        emit_.use(h.low_precision_shard, current);
        emit_.release(h.low_precision_shard);
    }
    h.prefetched = false;
    emit_.mark(Mark::reshard, h.unit, frees ? 1 : 0);
}

}  // namespace fsdplan::fsdp1
