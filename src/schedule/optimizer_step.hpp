#pragma once

#include "schedule/emitter.hpp"

namespace fsdplan {

/// The step over `numel` local elements that are stored in `bytes`: its kernels and, for a foreach
/// implementation, one temporary of that size.
void emit_optimizer(Emitter& emit, const TrainingJob& job, std::int64_t bytes, std::int64_t numel);

}  // namespace fsdplan
