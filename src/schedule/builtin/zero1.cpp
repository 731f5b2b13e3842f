#include <array>

#include "schedule/lower_zero.hpp"

namespace fsdplan {
namespace {

constexpr std::array strategies{Strategy::shard_grad_op};

}  // namespace

namespace builtin::runtime {

extern const RuntimeInfo zero1;
constinit const RuntimeInfo zero1{
    .name = "zero1",
    .help = "DeepSpeed ZeRO stage 1: optimizer states are partitioned",
    .wraps_by_policy = false,
    .has_units = false,
    .strategies = strategies,
    .lower = [](const LoweringInput& input) { return lower_zero(input, 1); },
    .parameters = ParameterForm::flat,
};

}  // namespace builtin::runtime
}  // namespace fsdplan
