#include "schedule/optimizer_step.hpp"

namespace fsdplan {

void emit_optimizer(Emitter& emit, const TrainingJob& job, std::int64_t bytes, std::int64_t numel) {
    using Implementation = Optimizer::Implementation;
    using Kind = Optimizer::Kind;
    const bool on_host = job.offload;
    const bool foreach = job.optimizer.implementation == Implementation::foreach;
    if (numel == 0) {
        return;
    }
    std::int32_t temporary = -1;
    if (foreach && job.optimizer.kind == Kind::adamw && !on_host) {
        temporary = emit.buffer({.bytes = bytes, .category = Category::optimizer_temporary});
        emit.allocate(temporary);
    }
    // Fused AdamW reads parameter, gradient and two states and writes three of them; foreach goes over them
    // about three times as often.
    const std::int64_t passes = job.optimizer.kind == Kind::sgd ? 3 : 7;
    const std::int64_t rounds = foreach ? 3 : 1;
    emit.add({.kind = on_host ? OpKind::host : OpKind::compute,
              .pass = emit.pass,
              .target = on_host ? static_cast<std::int32_t>(HostWork::optimizer) : -1,
              .launches = foreach ? 12 : 1,
              .bytes = passes * rounds * bytes,
              .flops = 0});
    emit.release(temporary);
}

}  // namespace fsdplan
