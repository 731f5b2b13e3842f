#include "schedule/gradient_norm.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/schedule_bytes.hpp"

namespace fsdplan {
namespace {

std::int64_t most_by_foreach(const std::vector<LocalGradient>& gradients, bool sharded) {
    Schedule schedule;
    Emitter emit(schedule);
    norms_by_foreach(emit, gradients, sharded);
    const std::vector<std::int64_t> bytes = test::bytes_over_time(schedule, Category::temporary);
    EXPECT_EQ(bytes.back(), 0);
    return std::ranges::max(bytes);
}

TEST(GradientNorm, ForeachHoldsAPartialNormForEveryChunk) {
    // Two gradients, the larger one in 3 chunks of 65,536: 2 x 3 partial sums and 2 norms of 4 bytes.
    const std::vector<LocalGradient> gradients{{.numel = 3 * 65536 - 1}, {.numel = 5}};
    EXPECT_EQ(most_by_foreach(gradients, false), 4 * (2 * 3 + 2));
}

TEST(GradientNorm, NormsOfShardsAreStackedAndExchanged) {
    // Of two small ones the stacks take more: 2 norms and four times both of them, 2 bytes each.
    const std::vector<LocalGradient> gradients(2, {.numel = 5, .dtype = DType::bfloat16});
    EXPECT_EQ(most_by_foreach(gradients, false), 4 * 2 + 2 * 2);
    EXPECT_EQ(most_by_foreach(gradients, true), 2 * (2 + 4 * 2));
}

TEST(GradientNorm, Fsdp1TakesOneNormAfterTheOther) {
    Schedule schedule;
    Emitter emit(schedule);
    norms_one_by_one(emit, std::vector<LocalGradient>(3, {.numel = 1'000'000}));
    EXPECT_EQ(std::ranges::max(test::bytes_over_time(schedule, Category::temporary)), 4 * (3 + 3));
}

}  // namespace
}  // namespace fsdplan
