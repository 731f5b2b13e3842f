#include "schedule/optimizer_step.hpp"

#include <limits>

namespace fsdplan {

void create_states(Emitter& emit, const TrainingJob& job, const LocalParameter& parameter, std::int32_t unit,
                   Category category) {
    const OptimizerInfo& info = optimizer(job.optimizer.kind);
    for (const StateBuffer& state : info.keep(parameter, job.optimizer.implementation)) {
        emit.allocate(emit.buffer({.bytes = state.bytes,
                                   .category = category,
                                   .on_host = state.on_host || job.offload,
                                   .unit = unit}));
    }
}

void emit_optimizer(Emitter& emit, const TrainingJob& job, const LocalParameters& parameters,
                    std::int64_t multiprocessors) {
    if (parameters.each.empty()) {
        return;
    }
    OptimizerStep step(emit, job.optimizer.implementation, parameters.each, multiprocessors);
    if (job.offload) {
        emit.add({.kind = OpKind::host,
                  .pass = emit.pass,
                  .target = static_cast<std::int32_t>(HostWork::optimizer),
                  .bytes = step.bytes()});
        return;
    }
    optimizer(job.optimizer.kind).step(step);
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
