#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "schedule/emitter.hpp"

// What a rank holds of a model beside that which units manage.
namespace fsdplan {

/// Parameters that no unit manages lie whole on every rank. `unit_of_tensor`: -1 there. `trains`: their
/// gradients and states stay too.
void allocate_outside_units(const ModuleTree& tree, const TrainingJob& job,
                            std::span<const std::int32_t> unit_of_tensor, bool trains, Emitter& emit);

/// The model's own buffers, the floating-point ones in `dtype`, if it is given. Returns those of the
/// schedule.
std::vector<std::int32_t> allocate_module_buffers(const ModuleTree& tree, std::optional<DType> dtype,
                                                  Emitter& emit);

}  // namespace fsdplan
