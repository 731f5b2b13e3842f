#include "operators/reduction.hpp"

#include <algorithm>
#include <bit>

#include "fsdplan/base.hpp"

namespace fsdplan {
namespace {

std::int64_t power_up_to(std::int64_t value, std::int64_t most) {
    return value < most ? static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(value))) : most;
}

}  // namespace

std::int64_t sum_scratch_bytes(std::int64_t rows, std::int64_t columns, std::int64_t multiprocessors) {
    constexpr std::int64_t threads_of_multiprocessor = 2048;
    constexpr std::int64_t warp = 32;
    constexpr std::int64_t fewest_values = 16;  // that a thread sums
    constexpr std::int64_t most_values = 256;
    if (rows <= 1) {
        return 0;
    }
    const std::int64_t vector = columns % 4 == 0 ? 4 : columns % 2 == 0 ? 2 : 1;  // columns of a thread
    const std::int64_t most_threads = 512 / vector;
    const std::int64_t across = power_up_to(columns / vector, most_threads);
    const std::int64_t height =
        std::min(power_up_to(rows, most_threads), most_threads / std::min(across, warp));
    const std::int64_t width = std::min(across, most_threads / height);
    if (rows < std::min(height * 16, most_values)) {
        return 0;  // each thread sums whole columns
    }
    const std::int64_t values = ceil_div(rows, height);
    const std::int64_t grid = ceil_div(columns / vector, width);
    const std::int64_t wanted = multiprocessors * (threads_of_multiprocessor / (width * height));
    if (values < most_values || grid > wanted) {
        return 0;
    }
    const std::int64_t blocks = std::max(std::min(ceil_div(wanted, grid), ceil_div(values, fewest_values)),
                                         ceil_div(values, most_values));
    constexpr std::int64_t accumulator = 4;
    return blocks > 1 ? accumulator * columns * blocks * width * vector : 0;
}

}  // namespace fsdplan
