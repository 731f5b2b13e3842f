#include <array>

#include "schedule/lower_zero.hpp"

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
    .lower = [](const LoweringInput& input) { return lower_zero(input, 3); },
    .parameters = ParameterForm::flat,
};

}  // namespace builtin::runtime
}  // namespace fsdplan
