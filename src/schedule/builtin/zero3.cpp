#include <array>

#include "schedule/lowerings.hpp"
#include "schedule/zero_layout.hpp"

namespace fsdplan {
namespace {

constexpr std::array strategies{Strategy::full_shard};

}  // namespace

namespace builtin::runtime {

extern const RuntimeInfo zero3;
constinit const RuntimeInfo zero3{
    .name = "zero3",
    .help = "DeepSpeed ZeRO stage 3: parameters too",
    .wraps_by_policy = false,
    .has_units = false,
    .strategies = strategies,
    .layout = lay_out_zero,
    .lower = lower_zero,
};

}  // namespace builtin::runtime
}  // namespace fsdplan
