#include <array>

#include "schedule/lower_zero.hpp"

namespace fsdplan {
namespace {

constexpr std::array strategies{Strategy::shard_grad_op};

}  // namespace

namespace builtin::runtime {

extern const RuntimeInfo zero2;
constinit const RuntimeInfo zero2{
    .name = "zero2",
    .help = "DeepSpeed ZeRO stage 2: gradients too",
    .wraps_by_policy = false,
    .has_units = false,
    .strategies = strategies,
    .lower = [](const LoweringInput& input) { return lower_zero(input, 2); },
    .parameters = ParameterForm::flat,
};

}  // namespace builtin::runtime
}  // namespace fsdplan
