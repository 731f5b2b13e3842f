#pragma once

#include <array>

#include "schedule/optimizer.hpp"

// What torch.optim.Adam and AdamW have in common, which is all that takes memory as long as Adam is given no
// weight decay. Source: torch/optim/adam.py of PyTorch 2.13.
namespace fsdplan::adam {

inline constexpr std::array implementations{Optimizer::Implementation::foreach,
                                            Optimizer::Implementation::fused,
                                            Optimizer::Implementation::for_loop};
inline constexpr std::string_view states = "two moments in the stored dtype";

std::string_view temporaries(Optimizer::Implementation implementation);
/// Two moments in the parameter's dtype and a count of steps, which lies in host memory unless fused.
std::vector<StateBuffer> keep(const LocalParameter& parameter, Optimizer::Implementation implementation);
void step(OptimizerStep& step);
/// The same by foreach over some of its parameters.
void step_foreach(OptimizerStep& step, std::span<const LocalParameter* const> parameters);

/// The registry's entry of one of them.
constexpr OptimizerInfo entry(std::string_view name, std::string_view help) {
    return {.name = name,
            .help = help,
            .implementations = implementations,
            .states = states,
            .temporaries = temporaries,
            .keep = keep,
            .step = step,
            .smaller = "adam8bit"};
}

}  // namespace fsdplan::adam
