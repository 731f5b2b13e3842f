#pragma once

#include "fsdplan/model.hpp"

// The models that the benchmarks are about.
namespace fsdplan::bench {

/// Llama-3.1-405B from its configuration: 126 equal layers.
constexpr const char* llama_405b = "llama3.1-405b";

/// A mixture of experts whose experts are modules: 58 layers of 256 experts with three projections each, as
/// models were written before experts were fused. About 60,000 modules; every expert of every layer has a
/// size of its own when `all_different`, so that no two subtrees are alike.
ModelGraph experts_as_modules(bool all_different);

}  // namespace fsdplan::bench
