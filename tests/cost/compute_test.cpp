#include <gmock/gmock.h>

#include "fsdplan/cost.hpp"

namespace fsdplan {
namespace {

// 132 SMs, whatever its file says of the rest.
Gpu h100() {
    return find_cluster({.gpu = "h100-sxm"}).gpu;
}

double seconds(const Estimate& time) {
    return static_cast<double>(time.value) / 1e9;
}

constexpr std::int64_t tile_rows = 256;
constexpr std::int64_t tile_columns = 128;

TEST(ProductShare, FallsBehindTheEdgeOfAWave) {
    // 12 x 11 tiles of 256 x 128 occupy 132 SMs; one more row of them begins a second wave that is nearly
    // empty.
    const KernelShape full{.m = 12 * tile_rows, .n = 11 * tile_columns, .k = 8192};
    const KernelShape over{.m = 13 * tile_rows, .n = 11 * tile_columns, .k = 8192};
    EXPECT_GT(product_share(h100(), full), 0.9);
    EXPECT_LT(product_share(h100(), over), 0.8 * product_share(h100(), full));
    // Many waves later the same row is lost in the mass.
    const KernelShape many{.m = 120 * tile_rows, .n = 11 * tile_columns, .k = 8192};
    const KernelShape many_and_one{.m = 121 * tile_rows, .n = 11 * tile_columns, .k = 8192};
    EXPECT_GT(product_share(h100(), many_and_one), 0.9 * product_share(h100(), many));
}

TEST(ProductShare, TilesAtTheEdgeAreFilledInPart) {
    // 8 columns of a tile of 64 at least.
    EXPECT_LT(product_share(h100(), {.m = 1 << 16, .n = 8, .k = 8192}), 0.125);
}

TEST(ProductShare, AProductAsDeepAsItsStartReachesHalf) {
    Gpu gpu = h100();
    gpu.constants.product_start.value = 512;
    const KernelShape deep{.m = 12 * tile_rows, .n = 11 * tile_columns, .k = 1 << 20};
    const KernelShape flat{.m = 12 * tile_rows, .n = 11 * tile_columns, .k = 512};
    EXPECT_NEAR(product_share(gpu, flat) / product_share(gpu, deep), 0.5, 0.001);
}

TEST(ProductShare, RowsThatAreNotAlignedCostMore) {
    EXPECT_LT(product_share(h100(), {.m = 4096, .n = 4095, .k = 4096}),
              0.7 * product_share(h100(), {.m = 4096, .n = 4096, .k = 4096}));
}

TEST(ProductTime, AThinProductIsLimitedByItsOperands) {
    // One row: the matrix [8192, 8192] is read for it, 128 MiB.
    const KernelShape thin{.m = 1, .n = 8192, .k = 8192};
    const double bytes = 2.0 * (8192.0 * 8192.0 + 2 * 8192.0);
    EXPECT_EQ(product_time(h100(), thin), memory_time(h100(), bytes));
    const KernelShape square{.m = 8192, .n = 8192, .k = 8192};
    EXPECT_GT(product_time(h100(), square).value, memory_time(h100(), 3 * 2.0 * 8192.0 * 8192.0).value);
}

TEST(ProductTime, IsOperationsOverPeakAndShares) {
    const Gpu gpu = h100();
    const KernelShape shape{.m = 8192, .n = 8192, .k = 8192};
    EXPECT_NEAR(seconds(product_time(gpu, shape)),
                2.0 * 8192 * 8192 * 8192 /
                    (gpu.flops_half * gpu.constants.products.value * product_share(gpu, shape)),
                1e-8);
    KernelShape single = shape;
    single.dtype = DType::float32;
    EXPECT_GT(product_time(gpu, single).value, 10 * product_time(gpu, shape).value);
}

TEST(ProductTime, TheIntervalIsThatOfTheConstant) {
    const Gpu gpu = h100();
    const Estimate time = product_time(gpu, {.m = 8192, .n = 8192, .k = 8192});
    const Constant& share = gpu.constants.products;
    EXPECT_NEAR(static_cast<double>(time.low) / static_cast<double>(time.value), share.value / share.high,
                1e-4);
    EXPECT_NEAR(static_cast<double>(time.high) / static_cast<double>(time.value), share.value / share.low,
                1e-4);
}

TEST(AttentionTime, KnowsItsKernel) {
    const Gpu gpu = h100();
    const KernelShape shape{.m = 8192, .n = 8192, .k = 128, .batch = 32};
    const auto time = [&](const KernelShape& of, AttentionKernel kernel) {
        return attention_time(gpu, of, 1e15, kernel).value;
    };
    const std::int64_t forward = time(shape, {});
    EXPECT_GT(time(shape, {.backward = true}), forward);
    EXPECT_EQ(time(shape, {.generation = 1}), 2 * forward);
    KernelShape narrow = shape;
    narrow.k = 64;
    EXPECT_GT(time(narrow, {}), forward);
    EXPECT_EQ(time(narrow, {.generation = 1}), 2 * forward);
    // Half of the blocks on the diagonal is thrown away: the shorter the sequence, the more that is.
    KernelShape causal = shape;
    causal.causal = true;
    EXPECT_NEAR(static_cast<double>(time(causal, {})) / static_cast<double>(forward), 8448.0 / 8192.0, 1e-4);
    KernelShape brief = shape;
    brief.m = brief.n = 512;
    EXPECT_GT(time(brief, {}), forward);
}

TEST(MemoryTime, SmallKernelsAreSlow) {
    const Gpu gpu = h100();
    constexpr double mib = 1024.0 * 1024.0;
    // 2 MiB beside 2 MiB of start: half the rate.
    EXPECT_NEAR(seconds(memory_time(gpu, 2 * mib)),
                4 * mib / (gpu.memory_bytes_per_s * gpu.constants.memory.value), 1e-9);
    EXPECT_EQ(memory_time(gpu, 10 * mib, 3), memory_time(gpu, 14 * mib, 1));
}

TEST(AssumedConstants, AreNamedOneALine) {
    EXPECT_THAT(assumed_constants(h100()), testing::IsEmpty());
    const std::vector<std::string> lines = assumed_constants(find_cluster({.gpu = "a10g"}).gpu);
    ASSERT_EQ(lines.size(), 6U);
    EXPECT_THAT(lines.front(),
                testing::HasSubstr("a10g: not known: share of the dense peak that large matrix products"));
}

}  // namespace
}  // namespace fsdplan
