#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "schedules.hpp"
#include "simulate/lanes.hpp"

namespace fsdplan {
namespace {

using simulated::Script;

TEST(Overlap, KernelsLoseWhatTheyShareAlone) {
    Script script;
    script.gather(100);
    const std::int32_t first = script.compute(60);
    const std::int32_t second = script.compute(60);  // 20 of it beside the gather
    const std::int32_t third = script.compute(60);
    const Timeline timeline = script.played(0.75);
    EXPECT_EQ(timeline.end_ns[static_cast<std::size_t>(first)], 80);
    EXPECT_EQ(timeline.end_ns[static_cast<std::size_t>(second)], 145);
    EXPECT_EQ(timeline.end_ns[static_cast<std::size_t>(third)], 205);
}

TEST(Overlap, CollectivesOfTwoStreamsAtOnceCountOnce) {
    Script script;
    script.gather(100);
    script.collective(CollectiveKind::all_reduce, Stream::all_reduce, 100, RankGroup::replicate);
    const std::int32_t kernel = script.compute(80);
    EXPECT_EQ(script.played(0.5).end_ns[static_cast<std::size_t>(kernel)], 130);
}

TEST(Overlap, OneRankAloneTakesNothing) {
    Script script;
    script.gather(100);
    script.schedule.collectives.front().ranks = 1;
    const std::int32_t kernel = script.compute(80);
    EXPECT_EQ(script.played(0.5).end_ns[static_cast<std::size_t>(kernel)], 80);
}

TEST(Overlap, ACollectiveThatIsIssuedLaterCountsWhenItRunsMeanwhile) {
    Script script;
    const std::int32_t kernel = script.compute(100);
    script.gather(50);
    script.join(Stream::reduce, Stream::compute);
    script.reduce(10);
    // Half of the gather's 50 is lost.
    EXPECT_EQ(script.played(0.5).end_ns[static_cast<std::size_t>(kernel)], 125);
}

/// Layers as FSDP2 plays them, each gathered one ahead; backward reduces behind each layer.
Script layers(std::mt19937_64& random) {
    const auto some = [&](std::int64_t n) {
        return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    const std::int64_t gather_ns = some(3000);
    const std::int64_t reduce_ns = some(3000);
    Script script;
    for (int layer = 0; layer < 40; ++layer) {
        script.add({.kind = OpKind::copy, .stream = Stream::pre_gather}, some(50), some(20));
        script.join(Stream::gather, Stream::pre_gather);
        script.gather(gather_ns);
        script.join(Stream::compute, Stream::gather);
        for (int kernel = 0; kernel < 10; ++kernel) {
            script.compute(some(300), some(20));
        }
        if (layer >= 20) {
            script.join(Stream::reduce, Stream::compute);
            script.add({.kind = OpKind::copy, .stream = Stream::reduce}, some(50));
            script.reduce(reduce_ns);
            if (random() % 2 == 0) {
                script.join(Stream::all_reduce, Stream::reduce);
                script.collective(CollectiveKind::all_reduce, Stream::all_reduce, some(2000),
                                  RankGroup::replicate);
            }
        }
        if (random() % 8 == 0) {
            script.block(script.record(Stream::compute));
        }
    }
    return script;
}

TEST(Overlap, SaysWhatTheEventSimulatorSays) {
    std::mt19937_64 random(11);
    for (int round = 0; round < 100; ++round) {
        SCOPED_TRACE(round);
        const Script script = layers(random);
        const Timeline fast = script.played(0.7);
        Timeline obvious;
        play_events(script.schedule, script.times, {.compute_permille = 700, .copy_permille = 700}, obvious);
        std::int64_t most = 0;  // that rounding can make of it: what a kernel has done when a collective ends
        for (std::size_t i = 0; i < fast.end_ns.size(); ++i) {
            most += works_on_device(script.schedule.ops[i].kind) ? 2 : 0;
            ASSERT_LE(std::abs(fast.end_ns[i] - obvious.end_ns[i]), most) << i;
        }
    }
}

}  // namespace
}  // namespace fsdplan
