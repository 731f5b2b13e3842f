#include <algorithm>
#include <array>
#include <cmath>

#include "fsdplan/cost.hpp"

namespace fsdplan {
namespace {

constexpr double half_bits = 16.0;

// A kernel computes its result in tiles, one on each SM at a time; small tiles reuse less of what they load.
// Share of the largest tiles' rate by cuBLAS' usual sizes.
struct Tile {
    double rows;
    double columns;
    double rate;
};
constexpr std::array<Tile, 6> tiles{
    {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.92}, {128, 64, 0.78}, {64, 128, 0.78}, {64, 64, 0.6}}};

// What is lost to a last wave of tiles that does not fill the GPU counts for less than its share: the others
// run a little faster meanwhile.
constexpr double wave_exponent = 0.8;

// Deep products with fewer tiles than SMs are split along k, at a price.
constexpr double split_depth = 4096.0;
constexpr double split_rate = 0.9;

// Rows that do not begin at multiples of 16 bytes cannot be loaded in one piece.
constexpr std::int64_t aligned_bytes = 16;
constexpr double misaligned_rate = 0.6;

// A product of which only its operations are known: of a deep layer, its tiles all at work.
constexpr double usual_depth = 4096.0;

// FlashAttention works on blocks of queries: short sequences leave the pipeline filling, and of the blocks on
// the diagonal half is thrown away.
constexpr double attention_start = 512.0;
constexpr double diagonal = 256.0;
constexpr double full_head = 128.0;
constexpr double narrow_head_rate = 0.8;
// FlashAttention 2 is twice as fast as the first with heads of 128 (Dao, 2023), which is no faster with them
// than with heads of 64.
constexpr double first_flash_rate = 0.5;

/// `work` over a rate whose share of the peak is `share`.
Estimate time_at(double work, double peak, const Constant& share) {
    const auto ns = [&](double part) {
        return static_cast<std::int64_t>(std::llround(work / (peak * part) * 1e9));
    };
    return {ns(share.value), ns(share.high), ns(share.low)};
}

Estimate slower(const Estimate& a, const Estimate& b) {
    return {std::max(a.value, b.value), std::max(a.low, b.low), std::max(a.high, b.high)};
}

double peak_of(const Gpu& gpu, DType dtype) {
    return bits(dtype) >= 32 ? gpu.flops_single : gpu.flops_half;
}

/// Share of the best rate that a product reaches with tiles of one size.
double tiled_rate(const KernelShape& shape, const Tile& tile, double sms) {
    const auto m = static_cast<double>(shape.m);
    const auto n = static_cast<double>(shape.n);
    const double in_tiles = std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    const double waves = in_tiles * static_cast<double>(shape.batch) / sms;
    const double filled = m * n / (in_tiles * tile.rows * tile.columns);
    if (waves < 1.0 && static_cast<double>(shape.k) > split_depth) {
        return tile.rate * filled * split_rate;
    }
    return tile.rate * filled * std::pow(waves / std::ceil(waves), wave_exponent);
}

bool aligned(const KernelShape& shape) {
    const std::int64_t numbers = aligned_bytes * 8 / bits(shape.dtype);
    return shape.n % numbers == 0 && shape.k % numbers == 0;
}

double kernel_rate(const KernelShape& shape, int generation) {
    if (generation == 1) {
        return first_flash_rate;
    }
    return static_cast<double>(shape.k) < full_head ? narrow_head_rate : 1.0;
}

}  // namespace

double product_share(const Gpu& gpu, const KernelShape& shape) {
    const auto sms = static_cast<double>(std::max<std::int64_t>(1, gpu.sm_count));
    double best = 0.0;
    for (const Tile& tile : tiles) {
        best = std::max(best, tiled_rate(shape, tile, sms));
    }
    const auto k = static_cast<double>(shape.k);
    return best * k / (k + gpu.constants.product_start.value) * (aligned(shape) ? 1.0 : misaligned_rate);
}

Estimate product_time(const Gpu& gpu, const KernelShape& shape) {
    const auto m = static_cast<double>(shape.m);
    const auto n = static_cast<double>(shape.n);
    const auto k = static_cast<double>(shape.k);
    const auto batch = static_cast<double>(shape.batch);
    const double bytes = batch * (m * k + k * n + m * n) * static_cast<double>(bits(shape.dtype)) / 8.0;
    return slower(time_at(2.0 * batch * m * n * k / product_share(gpu, shape), peak_of(gpu, shape.dtype),
                          gpu.constants.products),
                  memory_time(gpu, bytes));
}

Estimate product_time(const Gpu& gpu, double flops, DType dtype) {
    const double share = usual_depth / (usual_depth + gpu.constants.product_start.value);
    return time_at(flops / share, peak_of(gpu, dtype), gpu.constants.products);
}

Estimate attention_time(const Gpu& gpu, const KernelShape& shape, double flops, AttentionKernel kernel) {
    const auto keys = static_cast<double>(shape.n);
    const auto queries = static_cast<double>(shape.m);
    double rate = kernel_rate(shape, kernel.generation) * queries / (queries + attention_start);
    if (shape.causal) {
        rate *= keys / (keys + diagonal);
    }
    if (bits(shape.dtype) > half_bits) {
        rate *= gpu.flops_single / gpu.flops_half;
    }
    return time_at(flops / rate, gpu.flops_half,
                   kernel.backward ? gpu.constants.attention_backward : gpu.constants.attention_forward);
}

Estimate attention_time(const Gpu& gpu, double flops) {
    return time_at(flops, gpu.flops_half, gpu.constants.attention_backward);
}

Estimate memory_time(const Gpu& gpu, double bytes, std::int64_t kernels) {
    return time_at(bytes + gpu.kernel_start_bytes * static_cast<double>(kernels), gpu.memory_bytes_per_s,
                   gpu.constants.memory);
}

}  // namespace fsdplan
