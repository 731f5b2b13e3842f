#pragma once

#include <vector>

#include "schedule/optimizer.hpp"

// The optimizer's part of a training step.
namespace fsdplan {

/// Allocates the states of a parameter on `unit`'s account; -1: on nobody's.
void create_states(Emitter& emit, const TrainingJob& job, const LocalParameter& parameter,
                   std::int32_t unit = -1, Category category = Category::optimizer);

/// Parameters that one step goes over.
struct LocalParameters {
    std::vector<LocalParameter> each;

    /// Those without an element on this rank are none.
    void add(const LocalParameter& parameter) {
        if (parameter.numel > 0) {
            each.push_back(parameter);
        }
    }
};

/// The step over them: its kernels and what it holds meanwhile.
void emit_optimizer(Emitter& emit, const TrainingJob& job, const LocalParameters& parameters,
                    std::int64_t multiprocessors);

/// What clip_grad_norm_ exchanges: `norms` partial norms, inside the shard group.
void exchange_norms(Emitter& emit, const TrainingJob& job, DType dtype, std::int64_t norms);

}  // namespace fsdplan
