#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fsdplan/frontend.hpp"

namespace fsdplan::frontend {

/// Whether FSDP frees a unit's parameters after forward: 0 no, 1 yes, else in groups of so many ranks.
std::int64_t reshard_of(const Unit& unit, const TrainingJob& job);

/// Dtype of gradient reductions where it is not that of the parameters as they are stored.
std::optional<DType> reduction_dtype(const TrainingJob& job);

/// Whether both plans have the same units: the same modules together, freed alike after forward.
bool same_units(const WrapPlan& a, const TrainingJob& job_of_a, const WrapPlan& b,
                const TrainingJob& job_of_b);

/// Where the training that a settings file makes is another than the plan's, in words; "" when it is the
/// same.
std::string first_difference(const PlanToWrite& plan, const FrontendPlan& settings);

}  // namespace fsdplan::frontend
