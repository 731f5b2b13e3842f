#include "schedule/optimizer_step.hpp"

#include <algorithm>
#include <limits>

namespace fsdplan {
namespace {

using Implementation = Optimizer::Implementation;
using Kind = Optimizer::Kind;

constexpr std::int64_t step_bytes = 4;
constexpr std::int64_t scale_bytes = 4;
constexpr std::int64_t block_of_8bit = 256;      // elements that share a scale
constexpr std::int64_t smallest_of_8bit = 4096;  // elements; smaller tensors keep float32 moments

// Passes over the parameters' bytes: a fused AdamW reads parameter, gradient and two moments and writes three
// of them; foreach makes a pass for each operation.
std::int64_t passes(const Optimizer& optimizer) {
    switch (optimizer.kind) {
        case Kind::adamw:
            return optimizer.implementation == Implementation::fused ? 7 : 16;
        case Kind::adam8bit:
            return 8;
        case Kind::sgd:
            return 3;
    }
    return 16;
}

std::int64_t temporary_bytes(const Optimizer& optimizer, const LocalParameters& parameters) {
    if (optimizer.kind == Kind::adam8bit) {
        return 2 * parameters.largest_bytes;  // moments of one parameter in float32
    }
    if (optimizer.kind == Kind::sgd) {
        return 0;
    }
    switch (optimizer.implementation) {
        case Implementation::foreach:
            return parameters.bytes;
        case Implementation::for_loop:
            return 2 * parameters.largest_bytes;
        case Implementation::fused:
            return 0;
    }
    return 0;
}

}  // namespace

StateBuffers optimizer_states(const TrainingJob& job, std::int64_t numel, DType dtype) {
    const std::int64_t bytes = bytes_of(numel, dtype).count;
    const bool on_host = job.offload;
    switch (job.optimizer.kind) {
        case Kind::adamw:
            return StateBuffers(
                StateBuffer{bytes, on_host}, StateBuffer{bytes, on_host},
                StateBuffer{step_bytes, on_host || job.optimizer.implementation != Implementation::fused});
        case Kind::adam8bit: {
            if (numel < smallest_of_8bit) {
                const std::int64_t moments = bytes_of(numel, DType::float32).count;
                return StateBuffers(StateBuffer{moments, on_host}, StateBuffer{moments, on_host});
            }
            const std::int64_t moment = numel + scale_bytes * ceil_div(numel, block_of_8bit);
            return StateBuffers(StateBuffer{moment, on_host}, StateBuffer{moment, on_host});
        }
        case Kind::sgd:
            break;
    }
    return {};
}

void create_states(Emitter& emit, const TrainingJob& job, std::int64_t numel, DType dtype, std::int32_t unit,
                   Category category) {
    for (const StateBuffer& state : optimizer_states(job, numel, dtype)) {
        emit.allocate(emit.buffer(
            {.bytes = state.bytes, .category = category, .on_host = state.on_host, .unit = unit}));
    }
}

void LocalParameters::add(std::int64_t more_numel, DType dtype) {
    const std::int64_t more = bytes_of(more_numel, dtype).count;
    numel += more_numel;
    bytes += more;
    largest_bytes = std::max(largest_bytes, more);
}

void emit_optimizer(Emitter& emit, const TrainingJob& job, const LocalParameters& parameters) {
    if (parameters.numel == 0) {
        return;
    }
    const std::int32_t temporary =
        emit.buffer({.bytes = job.offload ? 0 : temporary_bytes(job.optimizer, parameters),
                     .category = Category::optimizer_temporary});
    emit.allocate(temporary);
    emit.add({.kind = job.offload ? OpKind::host : OpKind::compute,
              .pass = emit.pass,
              .target = job.offload ? static_cast<std::int32_t>(HostWork::optimizer) : -1,
              .launches = job.optimizer.implementation == Implementation::foreach ? 12 : 1,
              .bytes = passes(job.optimizer) * parameters.bytes});
    emit.release(temporary);
}

void exchange_norms(Emitter& emit, const TrainingJob& job, DType dtype, std::int64_t norms) {
    const bool maximum = !(*job.clip_norm < std::numeric_limits<double>::infinity());
    emit.issue(emit.collective({.kind = CollectiveKind::all_reduce,
                                .dtype = dtype,
                                .reduction = maximum ? Reduction::maximum : Reduction::sum,
                                .ranks = job.mesh.shard,
                                .input_numel = norms,
                                .output_numel = norms}),
               -1, Stream::compute);
}

}  // namespace fsdplan
