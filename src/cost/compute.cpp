#include <cmath>

#include "fsdplan/cost.hpp"

namespace fsdplan {
namespace {

Estimate in_ns(double seconds, double low, double high) {
    const auto ns = [](double value) { return static_cast<std::int64_t>(std::llround(value * 1e9)); };
    return {ns(seconds), ns(seconds * low), ns(seconds * high)};
}

}  // namespace

Estimate matmul_time(const Gpu& gpu, double flops, DType dtype) {
    const double peak = bits(dtype) >= 32 ? gpu.flops_single : gpu.flops_half;
    // Shapes of real layers reach about four fifths of the best product found: so published steps of MPT-7B
    // on A100 and H100 come out.
    return in_ns(flops / (peak * gpu.gemm_efficiency * 0.8), 0.85, 1.4);
}

Estimate attention_time(const Gpu& gpu, double flops) {
    return in_ns(flops / (gpu.flops_half * gpu.attention_efficiency), 0.6, 1.5);
}

Estimate memory_time(const Gpu& gpu, double bytes) {
    return in_ns(bytes / (gpu.memory_bytes_per_s * 0.85), 0.9, 1.4);
}

}  // namespace fsdplan
