#include "schedule/low_bit_adam.hpp"

// Source: bitsandbytes/optim/optimizer.py of bitsandbytes 0.50.
namespace fsdplan {
namespace {

constexpr std::int64_t smallest = 4096;  // elements; below, moments stay in float32
constexpr std::int64_t block = 256;      // elements that share a scale
constexpr std::int64_t float_bytes = 4;

// Scales are made for the whole parameter, also where ranks share its rows. The two tables of 1 KiB that all
// parameters share are left out.
std::vector<StateBuffer> keep(const LocalParameter& parameter, Optimizer::Implementation /*implementation*/) {
    std::int64_t whole = 1;
    for (const std::int64_t size : parameter.shape) {
        whole *= size;
    }
    whole = parameter.shape.empty() ? parameter.numel : whole;
    if (whole < smallest) {
        return {{parameter.numel * float_bytes}, {parameter.numel * float_bytes}};
    }
    const std::int64_t scales = ceil_div(whole, block) * float_bytes;
    return {{parameter.numel}, {parameter.numel}, {scales}, {scales}};
}

}  // namespace

namespace builtin::optimizer {

extern const OptimizerInfo adam8bit_bnb;
constinit const OptimizerInfo adam8bit_bnb{
    .name = "adam8bit-bnb",
    .help = "bitsandbytes.optim.Adam8bit and AdamW8bit",
    .states = "two moments of 8 bits with a scale for 256 elements",
    .temporaries = [](Optimizer::Implementation) -> std::string_view { return "in place"; },
    .keep = keep,
    .step = low_bit_adam::step,
};

}  // namespace builtin::optimizer
}  // namespace fsdplan
