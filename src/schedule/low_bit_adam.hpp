#pragma once

#include "schedule/optimizer.hpp"

// torchao's Adam with moments of few bits. Source: torchao/optim of torchao 0.18.
namespace fsdplan::low_bit_adam {

/// A moment for each of `bits`, a float32 scale for each block and a float32 value for each number of so many
/// bits; parameters of less than 4,096 elements or no whole number of blocks keep moments in their own dtype.
std::vector<StateBuffer> keep(const LocalParameter& parameter, std::int64_t bits, std::int64_t block);
std::string_view temporaries(Optimizer::Implementation implementation);
/// A compiled kernel or a few for each parameter, which keep what they raise to float32 in registers.
void step(OptimizerStep& step);

/// The registry's entry of the one with moments of so many bits and a scale for so many elements.
template <std::int64_t bits, std::int64_t block>
constexpr OptimizerInfo entry(std::string_view name, std::string_view help, std::string_view states) {
    return {.name = name,
            .help = help,
            .states = states,
            .temporaries = temporaries,
            .keep = [](const LocalParameter& parameter,
                       Optimizer::Implementation) { return keep(parameter, bits, block); },
            .step = step};
}

}  // namespace fsdplan::low_bit_adam
