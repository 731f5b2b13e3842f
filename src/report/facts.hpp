#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fsdplan/planner.hpp"

// What reports say about a model and its units, whatever their format.
namespace fsdplan {

struct ParameterTotals {
    std::int64_t numel = 0;
    std::int64_t trainable_numel = 0;
    std::int64_t bytes = 0;
};
ParameterTotals totals_of(const ModuleTree& tree);

struct Dtypes {
    DType stored{};  ///< of most elements
    DType compute{};
    DType reduce{};
};
Dtypes dtypes_of(const ModuleTree& tree, const TrainingJob& job);

/// For each row of the tree the unit whose module is nearest above it (or itself); -1: none.
std::vector<std::int32_t> unit_of_rows(const ModuleTree& tree, const WrapPlan& plan);
bool covers_all_rows(const ModuleTree& tree, const WrapPlan& plan);

/// Name of each row in its first parent; empty for the root.
std::vector<std::string> names_in_parents(const ModuleTree& tree);

}  // namespace fsdplan
