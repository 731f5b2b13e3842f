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
        case Kind::sgd_momentum:
            return 6;
    }
    return 16;
}

/// Buffers that one step needs beside the states.
class Temporaries {
public:
    Temporaries(Emitter& emit, const TrainingJob& job) : emit_(emit), job_(job) {}

    void allocate_all(const LocalParameters& parameters) {
        for (const std::int64_t bytes : parameters.each_bytes) {
            held_.push_back(allocate(bytes));
        }
    }
    void release_all() {
        for (const std::int32_t buffer : held_) {
            emit_.release(buffer);
        }
        held_.clear();
    }

    // denom = (second_moment.sqrt() / correction).add_(eps): a variable keeps the last one meanwhile.
    void one_by_one(const LocalParameters& parameters) {
        for (const std::int64_t bytes : parameters.each_bytes) {
            const std::int32_t root = allocate(bytes);
            const std::int32_t quotient = allocate(bytes);
            emit_.release(root);
            release_all();
            held_.push_back(quotient);
        }
        release_all();
    }

    // Moments of one parameter in float32.
    void dequantised(const LocalParameters& parameters) {
        held_.push_back(allocate(2 * parameters.largest_bytes));
    }

private:
    std::int32_t allocate(std::int64_t bytes) {
        const std::int32_t buffer =
            emit_.buffer({.bytes = job_.offload ? 0 : bytes, .category = Category::optimizer_temporary});
        emit_.allocate(buffer);
        return buffer;
    }

    Emitter& emit_;
    const TrainingJob& job_;
    std::vector<std::int32_t> held_;
};

void hold(Temporaries& temporaries, const Optimizer& optimizer, const LocalParameters& parameters) {
    if (optimizer.kind == Kind::adam8bit) {
        temporaries.dequantised(parameters);
    } else if (optimizer.kind == Kind::adamw && optimizer.implementation == Implementation::foreach) {
        temporaries.allocate_all(parameters);
    } else if (optimizer.kind == Kind::adamw && optimizer.implementation == Implementation::for_loop) {
        temporaries.one_by_one(parameters);
    }
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
        case Kind::sgd_momentum:
            return StateBuffers(StateBuffer{bytes, on_host});
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
    if (more > 0) {
        each_bytes.push_back(more);
    }
    largest_bytes = std::max(largest_bytes, more);
}

void emit_optimizer(Emitter& emit, const TrainingJob& job, const LocalParameters& parameters) {
    if (parameters.numel == 0) {
        return;
    }
    Temporaries temporaries(emit, job);
    hold(temporaries, job.optimizer, parameters);
    emit.add({.kind = job.offload ? OpKind::host : OpKind::compute,
              .pass = emit.pass,
              .target = job.offload ? static_cast<std::int32_t>(HostWork::optimizer) : -1,
              .launches = job.optimizer.implementation == Implementation::foreach ? 12 : 1,
              .bytes = passes(job.optimizer) * parameters.bytes});
    temporaries.release_all();
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
