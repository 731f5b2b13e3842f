#pragma once

#include <string_view>

#include "operators/layers.hpp"

namespace fsdplan {

/// A feed-forward block with a router "gate" and fused "experts", of which a token visits so many: tokens
/// sorted by expert, grouped products, results added up in float32. All tokens are computed, whoever gets
/// them.
Value sparse_mlp(Eager& f, ModuleIndex m, const Value& x, std::int64_t experts_per_token,
                 std::string_view act);

}  // namespace fsdplan
