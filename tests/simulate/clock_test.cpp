#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules.hpp"

namespace fsdplan {
namespace {

using simulated::random_script;
using simulated::Script;
using testing::ElementsAre;

std::int64_t end_of(const Timeline& timeline) {
    return timeline.end_ns.empty() ? 0 : std::ranges::max(timeline.end_ns);
}

TEST(Play, AStreamIsFirstInFirstOutAndTheHostRunsAhead) {
    Script script;
    script.compute(100, 10);
    script.compute(100, 10);
    script.compute(5, 300);
    const Timeline timeline = script.played();
    EXPECT_THAT(timeline.issued_ns, ElementsAre(10, 20, 320));
    EXPECT_THAT(timeline.start_ns, ElementsAre(10, 110, 320));
    EXPECT_THAT(timeline.end_ns, ElementsAre(110, 210, 325));
}

TEST(Play, AWaitHoldsItsStreamAndNotTheHost) {
    Script script;
    script.gather(500);
    const std::int32_t event = script.record(Stream::gather);
    const std::int32_t wait = script.wait(Stream::compute, event, 3);
    script.compute(10);
    const Timeline timeline = script.played();
    EXPECT_THAT(timeline.issued_ns, ElementsAre(0, 0, 0, 0));
    EXPECT_EQ(timeline.start_ns[static_cast<std::size_t>(wait)], 0);
    EXPECT_THAT(timeline.end_ns, ElementsAre(500, 500, 503, 513));
}

TEST(Play, AnEventThatHasPassedCostsNothing) {
    Script script;
    const std::int32_t event = script.record(Stream::gather);
    script.compute(100);
    script.wait(Stream::compute, event, 3);
    script.wait(Stream::compute, -1, 0);
    script.compute(10);
    EXPECT_EQ(end_of(script.played()), 110);
}

TEST(Play, ABlockHoldsTheHost) {
    Script script;
    script.compute(100);
    script.block(script.record(Stream::compute));
    script.gather(5);
    const Timeline timeline = script.played();
    EXPECT_THAT(timeline.start_ns, ElementsAre(0, 100, 0, 100));
    EXPECT_THAT(timeline.end_ns, ElementsAre(100, 100, 100, 105));
}

TEST(Play, CollectivesOfOneGroupRunInTheOrderOfIssue) {
    Script script;
    script.compute(100);
    script.join(Stream::reduce, Stream::compute);
    script.reduce(50);  // from 100: it has to wait for compute
    script.gather(10);  // its stream is free, but the communicator is promised to the reduction
    script.collective(CollectiveKind::all_reduce, Stream::all_reduce, 7, RankGroup::replicate);
    const Timeline timeline = script.played();
    EXPECT_EQ(timeline.start_ns[3], 100);
    EXPECT_EQ(timeline.start_ns[4], 150);
    EXPECT_EQ(timeline.start_ns[5], 0);
}

TEST(Play, TheHostsOwnWorkTakesItsTime) {
    Script script;
    script.host(40);
    script.compute(10, 5);
    const Timeline timeline = script.played();
    EXPECT_THAT(timeline.start_ns, ElementsAre(0, 45));
    EXPECT_THAT(timeline.end_ns, ElementsAre(40, 55));
}

TEST(Play, MemoryOfAnOlderRunIsOverwritten) {
    Timeline timeline;
    const Script longer = random_script(1);
    play(longer.schedule, longer.times, 1.0, timeline);
    Script script;
    script.compute(10);
    play(script.schedule, script.times, 1.0, timeline);
    EXPECT_THAT(timeline.end_ns, ElementsAre(10));
}

TEST(Play, SaysWhatTheEventSimulatorSays) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        SCOPED_TRACE(seed);
        const Script script = random_script(seed);
        ASSERT_EQ(first_fault(script.schedule), "");
        const Timeline fast = script.played();
        Timeline obvious;
        play_events(script.schedule, script.times, Contention{}, obvious);
        ASSERT_EQ(fast.issued_ns, obvious.issued_ns);
        ASSERT_EQ(fast.start_ns, obvious.start_ns);
        ASSERT_EQ(fast.end_ns, obvious.end_ns);
    }
}

TEST(Play, ALongerOperationNeverShortensTheStep) {
    std::mt19937_64 random(7);
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        SCOPED_TRACE(seed);
        Script script = random_script(seed, 150);
        const std::int64_t before = end_of(script.played());
        for (int change = 0; change < 20; ++change) {
            Script longer = script;
            const std::size_t i = random() % longer.times.device_ns.size();
            (random() % 2 == 0 ? longer.times.device_ns : longer.times.host_ns)[i] +=
                1 + static_cast<std::int64_t>(random() % 500);
            EXPECT_GE(end_of(longer.played()), before) << "operation " << i;
        }
    }
}

TEST(PlayEvents, KernelsSlowDownWhileACollectiveRuns) {
    Script script;
    script.gather(100);
    script.compute(80);
    Timeline timeline;
    // Kernels at half speed while the gather runs, the gather at full speed: 50 of 80 are done at 100.
    play_events(script.schedule, script.times, {.compute_permille = 500}, timeline);
    EXPECT_THAT(timeline.end_ns, ElementsAre(100, 130));
}

TEST(PlayEvents, ACollectiveSlowsDownWhileKernelsRun) {
    Script script;
    script.gather(100);
    script.compute(80);
    Timeline timeline;
    // At 0.8 of its speed for 80 ns it has done 64; 36 are left.
    play_events(script.schedule, script.times, {.collective_permille = 800}, timeline);
    EXPECT_THAT(timeline.end_ns, ElementsAre(116, 80));
}

TEST(PlayEvents, ContentionNeverShortensARun) {
    const Contention contention = usual_contention(find_cluster({}).gpu);
    EXPECT_TRUE(contention.any());
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        SCOPED_TRACE(seed);
        const Script script = random_script(seed);
        Timeline timeline;
        play_events(script.schedule, script.times, contention, timeline);
        EXPECT_GE(end_of(timeline), end_of(script.played()));
    }
}

TEST(UsualContention, KernelsKeepTheGpusConstantAndCopiesWhatTheRingLeaves) {
    Gpu gpu = find_cluster({}).gpu;
    gpu.constants.overlap.value = 0.7;
    const Contention contention = usual_contention(gpu);
    EXPECT_EQ(contention.compute_permille, 700);
    // Twice 360 of 3350 GB/s are drawn.
    EXPECT_EQ(contention.copy_permille, 785);
}

}  // namespace
}  // namespace fsdplan
