#include "fsdplan/measure.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/fake_backend.hpp"

namespace fsdplan {
namespace {

using test::FakeBackend;

const std::vector<std::int64_t> a_microsecond_each(20, 1000);

std::size_t samples_of(const MeasuringOptions& options, std::int64_t drift_ns) {
    FakeBackend backend(a_microsecond_each);
    backend.drift_ns = drift_ns;
    return measure_devices(backend, options).curves.front().samples.front().us.size();
}

TEST(MeasureDevices, TimesEveryCollectiveAtSizesThatDouble) {
    FakeBackend backend(a_microsecond_each);
    const Calibration out =
        measure_devices(backend, {.budget_s = 60, .least = 1_B * 1000, .most = 1_B * 4000});
    EXPECT_EQ(out.backend, "fake");
    EXPECT_EQ(out.library, "fake 1.0");
    ASSERT_EQ(out.curves.size(), 3U);
    EXPECT_EQ(id_of(out.curves[1]), "reduce_scatter-2x1");
    const std::vector<CollectiveCurve::Point> points = median_points(out.curves[0].samples);
    ASSERT_EQ(points.size(), 3U);
    EXPECT_EQ(points[0].bytes, 1000);
    EXPECT_EQ(points[2].bytes, 4000);
    EXPECT_EQ(points[2].us, 1.0);
}

TEST(MeasureDevices, DescribesTheDevices) {
    FakeBackend backend(a_microsecond_each);
    const Cluster devices = *measure_devices(backend, {.most = 8192_B}).devices;
    EXPECT_EQ(devices.gpus, 2);
    EXPECT_DOUBLE_EQ(devices.gpu.flops_single, 1e8 / 1e-6);               // 100 MFLOP in a microsecond
    EXPECT_DOUBLE_EQ(devices.gpu.memory_bytes_per_s, 2 * 0x1p25 / 1e-6);  // 32 MiB read and written
    EXPECT_EQ(devices.gpu.constants.overlap.value, 1.0);
}

TEST(MeasureDevices, StopsOnceATimeIsPrecise) {
    EXPECT_EQ(samples_of({.most = 4096_B}, 0), 3U);
}

TEST(MeasureDevices, StopsWhenTheBudgetIsSpent) {
    EXPECT_EQ(samples_of({.budget_s = 0, .most = 4096_B}, 100), 1U);
}

TEST(MeasureDevices, GivesUpOnTimesThatNeverSettle) {
    EXPECT_EQ(samples_of({.budget_s = 3600, .most = 4096_B, .precision = 1e-9}, 100), 50U);
}

}  // namespace
}  // namespace fsdplan
