#include <gtest/gtest.h>

#include <algorithm>

#include "schedules.hpp"

namespace fsdplan {
namespace {

using simulated::Script;

/// Ends of all operations after the loss to collectives at `speed`.
Timeline slowed(const Script& script, double speed) {
    OpTimes times = script.times;
    Timeline timeline = script.played();
    lose_to_collectives(script.schedule, timeline, speed, times);
    play(script.schedule, times, timeline);
    return timeline;
}

TEST(LoseToCollectives, KernelsLoseWhatTheyShareAlone) {
    Script script;
    script.gather(100);
    const std::int32_t first = script.compute(60);
    const std::int32_t second = script.compute(60);  // 40 of it beside the gather
    const std::int32_t third = script.compute(60);
    const Timeline timeline = slowed(script, 0.75);
    EXPECT_EQ(timeline.end_ns[static_cast<std::size_t>(first)], 60 + 15);
    EXPECT_EQ(timeline.end_ns[static_cast<std::size_t>(second)], 75 + 60 + 10);
    EXPECT_EQ(timeline.end_ns[static_cast<std::size_t>(third)], 145 + 60);
}

TEST(LoseToCollectives, CollectivesOfTwoStreamsAtOnceCountOnce) {
    Script script;
    script.gather(100);
    script.collective(CollectiveKind::all_reduce, Stream::all_reduce, 100, RankGroup::replicate);
    const std::int32_t kernel = script.compute(80);
    EXPECT_EQ(slowed(script, 0.5).end_ns[static_cast<std::size_t>(kernel)], 120);
}

TEST(LoseToCollectives, OneRankAloneTakesNothing) {
    Script script;
    script.gather(100);
    script.schedule.collectives.front().ranks = 1;
    const std::int32_t kernel = script.compute(80);
    EXPECT_EQ(slowed(script, 0.5).end_ns[static_cast<std::size_t>(kernel)], 80);
}

TEST(LoseToCollectives, ComesNearTheEventSimulatorOnLayers) {
    // Forward of 24 layers, each gathered one ahead.
    Script script;
    script.gather(400);
    for (int layer = 0; layer < 24; ++layer) {
        const std::int32_t ready = script.record(Stream::gather);
        script.gather(400);
        script.wait(Stream::compute, ready);
        for (int kernel = 0; kernel < 10; ++kernel) {
            script.compute(100);
        }
    }
    Timeline events;
    play_events(script.schedule, script.times, {.compute_permille = 700, .copy_permille = 700}, events);
    const auto end = static_cast<double>(std::ranges::max(events.end_ns));
    EXPECT_NEAR(static_cast<double>(std::ranges::max(slowed(script, 0.7).end_ns)) / end, 1.0, 0.02);
}

}  // namespace
}  // namespace fsdplan
