#include "schedule/fsdp2_reduction.hpp"

#include "schedule/gradient_division.hpp"

namespace fsdplan::fsdp2 {

Reductions::Reductions(const TrainingJob& job, Emitter& emit)
    : job_(job),
      torch_(torch_behaviour(job.torch)),
      emit_(emit),
      replicated_(is_hybrid(job.strategy) || job.mesh.replicate > 1) {}

void Reductions::collect(Group& g) {
    gradients_.clear();
    const auto add = [&](Member& m, std::int32_t from) {
        gradients_.push_back({&m, from, from, m.padded_numel * job_.mesh.shard});
    };
    for (Member& m : g.members) {
        if (m.has_accumulated) {
            add(m, m.accumulated);
            m.has_accumulated = false;
            if (&m == &g.members.back()) {
                kept_by_caller_ = m.accumulated;
            }
        } else if (m.has_gradient) {
            add(m, m.kept);
            m.has_gradient = false;
            if (m.kept == m.accumulated && &m == &g.members.back()) {
                kept_by_caller_ = m.kept;
            }
        } else if (job_.fsdp2.reduce_scatter_unused_params && g.ever_gathered && m.trainable) {
            emit_.allocate(m.gradient);
            add(m, m.gradient);
        }
    }
}

void Reductions::reduce(Group& g, bool all_reduces) {
    while (!inputs_.empty() &&
           static_cast<std::int64_t>(inputs_.size()) >= job_.fsdp2.reduce_scatter_max_input_buffers) {
        release_oldest_input();
    }
    if (gradients_.empty()) {
        return;
    }
    emit_.release(g.held_output);
    std::int64_t numel = 0;
    for (const Gradient& gradient : gradients_) {
        numel += gradient.padded_numel;
    }
    const DType dtype = g.reduce.value_or(gradients_.front().member->gather);
    const std::int32_t rearranged = rearrange();
    const std::int32_t input = copy_in(g, numel, dtype);
    const std::int32_t last = release_copied(g);
    emit_.after(reduce_scatter_stream, Stream::compute);
    const Output out = reduce_scatter(g, numel, dtype);
    inputs_.push_back({input, emit_.record(reduce_scatter_stream)});
    finish(g, out, all_reduces);
    emit_.release(rearranged);
    if (last != kept_by_caller_) {
        emit_.release(last);
    }
}

// Returns what a local variable keeps until the end: the last gradient that was rearranged.
std::int32_t Reductions::rearrange() {
    std::int32_t held = -1;
    for (Gradient& gradient : gradients_) {
        if (job_.mesh.shard > 1 && !gradient.member->along_rows) {
            emit_.allocate(gradient.member->rearranged);
            gradient.source = gradient.member->rearranged;
            emit_.release(held);
            held = gradient.buffer;
        }
    }
    return held;
}

std::int32_t Reductions::copy_in(Group& g, std::int64_t numel, DType dtype) {
    const std::int32_t input = reduce_buffer(g, numel, dtype, Category::reduce_input, Stream::compute);
    emit_.allocate(input);
    std::int64_t bytes = 0;
    for (const Gradient& gradient : gradients_) {
        bytes += gradient.member->bytes;
    }
    emit_.copy(bytes, g.unit, Stream::compute);
    return input;
}

// Returns the last gradient where it stays in a loop variable.
std::int32_t Reductions::release_copied(const Group& g) {
    const bool of_last_member = gradients_.back().member == &g.members.back();
    const bool early = torch_.widens_gradients_early;
    const std::int32_t last = job_.mesh.shard > 1 && !early ? gradients_.back().buffer : -1;
    if (early && of_last_member) {
        kept_by_caller_ = gradients_.back().buffer;
    }
    for (auto gradient = gradients_.rbegin(); gradient != gradients_.rend(); ++gradient) {  // Python's order
        if (gradient->source != last && gradient->source != kept_by_caller_) {
            emit_.release(gradient->source);
        }
    }
    return last;
}

Reductions::Output Reductions::reduce_scatter(Group& g, std::int64_t numel, DType dtype) {
    const std::int64_t ranks = job_.mesh.shard;
    const Output out{
        .buffer = reduce_buffer(g, numel / ranks, dtype, Category::reduce_output, reduce_scatter_stream),
        .numel = numel / ranks,
        .dtype = dtype,
        .factors = factors_of(g, dtype)};
    emit_.allocate(out.buffer);
    divide(out.factors.before, numel, dtype, g.unit, reduce_scatter_stream);
    if (ranks > 1) {
        emit_.issue(emit_.collective({.kind = CollectiveKind::reduce_scatter,
                                      .dtype = dtype,
                                      .reduction = out.factors.scatter,
                                      .ranks = ranks,
                                      .input_numel = numel,
                                      .output_numel = out.numel}),
                    g.unit, reduce_scatter_stream);
    } else {
        emit_.copy(bytes_of(numel, dtype).count, g.unit, reduce_scatter_stream);
    }
    return out;
}

void Reductions::finish(Group& g, const Output& out, bool all_reduces) {
    if (replicated_ && !all_reduces) {
        keep_partial(g, out);
        return;
    }
    if (replicated_) {
        all_reduce(g, out);
    }
    const Stream last = replicated_ ? Stream::all_reduce : reduce_scatter_stream;
    divide(out.factors.after, out.numel, out.dtype, g.unit, last);
    to_sharded_gradient(g, out, last);
    for (const Gradient& gradient : gradients_) {
        gradient.member->has_sharded_gradient = true;
    }
    emit_.release(g.partial);
    g.partial = -1;
    post_reduce_ = last;
}

void Reductions::keep_partial(Group& g, const Output& out) {
    if (g.partial >= 0) {
        emit_.copy(bytes_of(out.numel, out.dtype).count, g.unit, reduce_scatter_stream);
        emit_.free(out.buffer);
    } else {
        g.partial = out.buffer;
    }
}

void Reductions::all_reduce(const Group& g, const Output& out) {
    if (g.partial >= 0) {
        emit_.copy(bytes_of(out.numel, out.dtype).count, g.unit, reduce_scatter_stream);
    }
    emit_.after(Stream::all_reduce, reduce_scatter_stream);
    emit_.issue(emit_.collective({.kind = CollectiveKind::all_reduce,
                                  .group = RankGroup::replicate,
                                  .dtype = out.dtype,
                                  .reduction = out.factors.all_reduce,
                                  .ranks = job_.mesh.replicate,
                                  .input_numel = out.numel,
                                  .output_numel = out.numel}),
                g.unit, Stream::all_reduce);
}

// In the dtype and the place of the shard, added to what is there.
void Reductions::to_sharded_gradient(Group& g, const Output& out, Stream last) {
    std::int32_t result = out.buffer;
    if (out.dtype != g.orig) {
        result = reduce_buffer(g, out.numel, g.orig, Category::gradient_shard, last);
        emit_.allocate(result);
        emit_.copy(bytes_of(out.numel, out.dtype).count, g.unit, last);
        if (replicated_) {
            g.held_output = out.buffer;
        } else {
            emit_.free(out.buffer);
        }
    }
    if (job_.offload) {
        result = to_host(g, result, out.numel, last);
    }
    if (g.has_sharded_gradient) {
        emit_.copy(bytes_of(out.numel, g.orig).count, g.unit, last);
        if (replicated_ && result == out.buffer) {
            g.held_output = out.buffer;
        } else {
            emit_.release(result);
        }
    } else {
        g.sharded_gradient = result;
        g.has_sharded_gradient = true;
        emit_.relabel(result, Category::gradient_shard);
    }
}

// The stream's later work runs behind the copy, so that the device's gradient goes at once.
std::int32_t Reductions::to_host(Group& g, std::int32_t gradient, std::int64_t numel, Stream stream) {
    const std::int32_t host =
        reduce_buffer(g, numel, g.orig, Category::gradient_shard, Stream::compute, true);
    emit_.allocate(host);
    emit_.copy(bytes_of(numel, g.orig).count, g.unit, stream, OpKind::to_host);
    emit_.release(gradient);
    return host;
}

Reductions::Factors Reductions::factors_of(const Group& g, DType dtype) const {
    const std::int64_t data_parallel = job_.mesh.ranks();
    const bool may_overflow = dtype != DType::float32 && dtype != DType::bfloat16;
    if (!may_overflow && !g.force_sum) {
        if (!g.divide_factor) {
            const Reduction op = data_parallel == 1 ? Reduction::sum : Reduction::average;
            return {.scatter = op, .all_reduce = op};
        }
        const bool plain = *g.divide_factor == static_cast<double>(job_.mesh.shard);
        return {.scatter = plain ? Reduction::average : Reduction::premultiplied_sum,
                .all_reduce = Reduction::sum};
    }
    const double factor = g.divide_factor.value_or(static_cast<double>(data_parallel));
    Factors out{.after = factor, .scatter = Reduction::sum, .all_reduce = Reduction::sum};
    if (may_overflow) {
        out.before = predivide_factor(factor);
        out.after = factor / out.before;
    }
    return out;
}

void Reductions::divide(double factor, std::int64_t numel, DType dtype, std::int32_t unit, Stream stream) {
    if (factor != 1) {
        emit_.copy(bytes_of(numel, dtype).count, unit, stream);
    }
}

std::int32_t Reductions::reduce_buffer(Group& g, std::int64_t numel, DType dtype, Category category,
                                       Stream stream, bool on_host) {
    return pooled_buffer(emit_, g.reduce_buffers,
                         {.bytes = bytes_of(numel, dtype).count,
                          .category = category,
                          .stream = stream,
                          .on_host = on_host,
                          .unit = g.unit});
}

void Reductions::release_oldest_input() {
    const Input oldest = inputs_.front();
    inputs_.pop_front();
    emit_.wait(Stream::compute, oldest.event);
    emit_.free(oldest.buffer);
}

void Reductions::release_last_gradient() {
    emit_.release(kept_by_caller_);
    kept_by_caller_ = -1;
}

void Reductions::finalize(Group& g) {
    emit_.after(Stream::compute, post_reduce_);
    emit_.release(g.held_output);
    if (job_.offload) {
        emit_.block(emit_.record(Stream::compute));
    }
}

void Reductions::release_inputs() {
    while (!inputs_.empty()) {
        release_oldest_input();
    }
}

}  // namespace fsdplan::fsdp2
