#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/code_words.hpp"

namespace fsdplan {

/// One call of fully_shard or FSDP, the root's left out.
struct UnitCall {
    std::vector<std::string> modules;
    /// reshard_after_forward that the unit was given: 0 false, 1 true, k > 1 groups of k.
    std::optional<std::int64_t> own_reshard;
};

/// The units of a plan, as code names them.
struct UnitsInCode {
    std::vector<UnitCall> calls;  ///< in the order of the plan
    std::optional<std::int64_t> root_reshard;
    std::vector<std::string> inner;         ///< the modules of all calls
    std::vector<std::string> classes;       ///< whose instances are just these units; empty: there are none
    std::optional<std::int64_t> threshold;  ///< min_num_params that draws them, where it was asked for
};

/// Empty where a few lines do not say it.
std::string fsdp1_code(const ModuleTree& tree, const TrainingJob& job, const UnitsInCode& units);
std::string fsdp2_code(const ModuleTree& tree, const TrainingJob& job, const UnitsInCode& units);

}  // namespace fsdplan
