#pragma once

#include <array>

#include "schedule/optimizer.hpp"

// What torch.optim.SGD does with and without momentum. Source: torch/optim/sgd.py of PyTorch 2.13.
namespace fsdplan::sgd {

inline constexpr std::array implementations{Optimizer::Implementation::foreach,
                                            Optimizer::Implementation::fused,
                                            Optimizer::Implementation::for_loop};

std::string_view temporaries(Optimizer::Implementation implementation);
std::string_view refused(ParameterForm form, Optimizer::Implementation implementation);
/// Steps in place, in so many passes over the bytes of a parameter and kernels for each.
void step(OptimizerStep& step, std::int64_t passes, std::int32_t launches);

}  // namespace fsdplan::sgd
