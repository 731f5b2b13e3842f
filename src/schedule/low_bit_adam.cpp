#include "schedule/low_bit_adam.hpp"

namespace fsdplan::low_bit_adam {

std::vector<StateBuffer> keep(const LocalParameter& parameter, std::int64_t bits, std::int64_t block) {
    constexpr std::int64_t smallest = 4096;
    constexpr std::int64_t float_bytes = 4;
    std::vector<StateBuffer> out{{.bytes = float_bytes, .on_host = true}};  // count of steps
    const std::int64_t numel = parameter.numel;
    const bool quantised = numel >= smallest && numel % block == 0;
    for (int moment = 0; moment < 2; ++moment) {
        if (!quantised) {
            out.push_back({parameter.bytes()});
            continue;
        }
        out.push_back({numel * bits / 8});
        out.push_back({numel / block * float_bytes});
        out.push_back({(std::int64_t{1} << bits) * float_bytes});
    }
    return out;
}

std::string_view temporaries(Optimizer::Implementation /*implementation*/) {
    return "in place, by a compiled kernel";
}

void step(OptimizerStep& step) {
    constexpr std::int64_t passes = 8;
    constexpr std::int32_t launches = 2;
    for (const LocalParameter& p : step.parameters()) {
        step.run(passes * p.bytes(), launches);
    }
}

}  // namespace fsdplan::low_bit_adam
