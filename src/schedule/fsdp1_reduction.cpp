#include "schedule/fsdp1_reduction.hpp"

namespace fsdplan::fsdp1 {
namespace {

// Unsharded, and reduced in the dtype that is kept: what was cast becomes the gradient.
bool cast_stays(const Handle& h, const TrainingJob& job) {
    return !h.sharded() && (h.settings.reduce == h.settings.orig || job.fsdp1.keep_low_precision_gradients);
}

void divide(const Handle& h, double factor, std::int64_t numel, Stream stream, Emitter& emit) {
    if (factor > 1) {
        emit.copy(bytes_of(numel, h.settings.reduce).count, h.unit, stream);
    }
}

void reduce_sharded(Handle& h, const TrainingJob& job, Emitter& emit) {
    if (h.padded_gradient >= 0) {
        emit.allocate(h.padded_gradient);
        emit.copy(bytes_of(h.numel, h.settings.reduce).count, h.unit, post_backward_stream);
    }
    // Without a cast and a sum the output of the reduction is the gradient itself.
    const bool becomes_gradient = h.settings.reduce == h.settings.orig && !h.has_shard_gradient;
    const std::int32_t output = becomes_gradient ? h.shard_gradient : h.reduced;
    emit.allocate(output);
    divide(h, h.predivide, h.numel, post_backward_stream, emit);
    emit.issue(h.scatter, h.unit, post_backward_stream);
    Stream last = post_backward_stream;
    if (h.hybrid()) {
        emit.after(Stream::all_reduce, post_backward_stream);
        emit.use(output, Stream::all_reduce);
        emit.issue(h.all_reduce, h.unit, Stream::all_reduce);
        last = Stream::all_reduce;
    }
    divide(h, h.postdivide, h.shard_numel, last, emit);
    if (!becomes_gradient) {
        emit.copy(bytes_of(h.shard_numel, h.settings.reduce).count, h.unit, last);
        if (!h.has_shard_gradient) {
            emit.allocate(h.shard_gradient);
        }
        emit.free(output);
    }
    h.has_shard_gradient = true;
    if (job.offload) {
        emit.copy(bytes_of(h.shard_numel, h.settings.orig).count, h.unit, last, OpKind::to_host);
    }
    emit.release(h.padded_gradient);
    emit.release(h.cast_gradient);
    emit.use(h.flat_gradient, post_backward_stream);
    emit.free(h.flat_gradient);
    h.has_gradient = false;
}

void reduce_unsharded(Handle& h, Emitter& emit) {
    divide(h, h.predivide, h.numel, post_backward_stream, emit);
    emit.issue(h.all_reduce, h.unit, post_backward_stream);
    divide(h, h.postdivide, h.numel, post_backward_stream, emit);
    if (h.cast_gradient >= 0 || h.settings.reduce != h.settings.orig) {
        if (!emit.is_live(h.shard_gradient)) {
            emit.allocate(h.shard_gradient);
        }
        if (emit.is_live(h.cast_gradient)) {
            emit.copy(bytes_of(h.numel, h.settings.reduce).count, h.unit, post_backward_stream);
            emit.release(h.cast_gradient);
        }
        emit.use(h.flat_gradient, post_backward_stream);
        emit.free(h.flat_gradient);
        h.has_shard_gradient = true;
    } else {
        emit.relabel(h.flat_gradient, Category::gradient_shard);
    }
}

// The sum of the micro-batches so far is reduced again, cast to the dtype of the reduction and back.
void reduce_kept(Handle& h, const TrainingJob& job, Emitter& emit) {
    const bool is_cast = h.settings.reduce != h.settings.orig && !job.fsdp1.keep_low_precision_gradients;
    const std::int32_t cast = h.cast_gradient >= 0 ? h.cast_gradient : h.flat_gradient;
    const std::int64_t bytes = bytes_of(h.numel, h.settings.reduce).count;
    if (is_cast) {
        emit.allocate(cast);
        emit.copy(bytes, h.unit, post_backward_stream);
    }
    divide(h, h.predivide, h.numel, post_backward_stream, emit);
    emit.issue(h.all_reduce, h.unit, post_backward_stream);
    divide(h, h.postdivide, h.numel, post_backward_stream, emit);
    if (is_cast) {
        emit.copy(bytes, h.unit, post_backward_stream);
        emit.free(cast);
    }
}

// An unsharded gradient of an earlier micro-batch that was reduced and is in a buffer of its own.
bool keeps_reduced(const Handle& h, const Emitter& emit) {
    return !h.sharded() && emit.is_live(h.shard_gradient);
}

}  // namespace

void assemble(Handle& h, Emitter& emit) {
    emit.after(views_stream, Stream::compute);
    const std::int32_t into = emit.is_live(h.flat_gradient) ? h.fresh_gradient : h.flat_gradient;
    if (!emit.is_live(into)) {
        emit.allocate(into);
    }
    std::int64_t bytes = 0;
    for (const Handle::Member& member : h.members) {
        if (emit.is_live(member.gradient)) {
            bytes += bytes_of(member.numel, h.settings.param).count;
        }
    }
    emit.copy(bytes, -1, views_stream);
    for (const Handle::Member& member : h.members) {
        emit.use(member.gradient, views_stream);  // by autograd, which has changed streams
        emit.release(member.gradient);
    }
    h.has_gradient = true;
}

void accumulate(Handle& h, Emitter& emit) {
    emit.release(h.fresh_gradient);
    if (keeps_reduced(h, emit)) {
        emit.release(h.flat_gradient);
    }
}

void reduce(Handle& h, const TrainingJob& job, Emitter& emit) {
    emit.after(post_backward_stream, views_stream);
    if (keeps_reduced(h, emit)) {
        reduce_kept(h, job, emit);
        return;
    }
    if (h.cast_gradient >= 0) {
        emit.allocate(cast_stays(h, job) ? h.shard_gradient : h.cast_gradient);
        emit.copy(bytes_of(h.numel, h.settings.param).count, h.unit, post_backward_stream);
    }
    if (h.sharded()) {
        reduce_sharded(h, job, emit);
    } else {
        reduce_unsharded(h, emit);
    }
    h.ever_reduced = true;
}

void keep_low_precision(Handle& h, const TrainingJob& job, Emitter& emit) {
    if (!job.fsdp1.keep_low_precision_gradients || !h.sharded() || !h.mixed() ||
        !emit.is_live(h.shard_gradient)) {
        return;
    }
    emit.allocate(h.low_precision_gradient);
    emit.copy(bytes_of(h.shard_numel, h.settings.orig).count, -1, Stream::compute);
    emit.free(h.shard_gradient);
    h.has_shard_gradient = false;
}

void drop_gradients(Handle& h, Emitter& emit) {
    emit.release(h.shard_gradient);
    emit.release(h.low_precision_gradient);
    emit.release(h.flat_gradient);
    h.has_shard_gradient = false;
    h.has_gradient = false;
}

}  // namespace fsdplan::fsdp1
