#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules.hpp"

namespace fsdplan {
namespace {

using simulated::random_script;
using simulated::Script;

struct Part {
    Cause cause{};
    std::int32_t culprit = -1;
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;

    friend bool operator==(const Part&, const Part&) = default;
    friend std::ostream& operator<<(std::ostream& out, const Part& part) {
        return out << name(part.cause) << " " << part.culprit << " [" << part.start_ns << ", " << part.end_ns
                   << ")";
    }
};

std::vector<Part> parts(const Script& script) {
    std::vector<Part> out;
    for (const ExposedWait& wait : exposed_waits(script.schedule, script.played())) {
        out.push_back({wait.cause, wait.culprit, wait.start_ns, wait.end_ns});
    }
    return out;
}

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ExposedWaits, NoneWhereComputeIsBusy) {
    Script script;
    script.compute(100);
    const std::int32_t event = script.gather(90);
    EXPECT_EQ(event, 1);
    script.join(Stream::compute, Stream::gather);
    script.compute(100);
    EXPECT_THAT(parts(script), IsEmpty());
}

TEST(ExposedWaits, AGatherThatTakesLonger) {
    Script script;
    script.compute(100);
    const std::int32_t gather = script.gather(150);
    script.join(Stream::compute, Stream::gather);
    script.compute(10);
    EXPECT_THAT(parts(script), ElementsAre(Part{Cause::gather, gather, 100, 150}));
}

TEST(ExposedWaits, AGatherBehindAReduction) {
    Script script;
    script.compute(100);
    const std::int32_t reduce = script.reduce(130);
    const std::int32_t gather = script.gather(50);
    script.join(Stream::compute, Stream::gather);
    script.compute(10);
    EXPECT_THAT(parts(script),
                ElementsAre(Part{Cause::reduce, reduce, 100, 130}, Part{Cause::gather, gather, 130, 180}));
}

TEST(ExposedWaits, AHostThatIsSlow) {
    Script script;
    script.compute(10, 5);
    script.compute(10, 50);  // issued at 55
    EXPECT_THAT(parts(script), ElementsAre(Part{Cause::host, -1, 15, 55}));
}

TEST(ExposedWaits, AGatherThatTheLimiterHeldBack) {
    Script script;
    script.compute(100);
    const std::int32_t done = script.record(Stream::compute);
    script.compute(50);
    const std::int32_t block = script.block(done);
    const std::int32_t gather = script.gather(80);  // from 100, when the host is let go
    script.join(Stream::compute, Stream::gather);
    script.compute(10);
    EXPECT_THAT(parts(script), ElementsAre(Part{Cause::gather, gather, 150, 180}));
    // A longer block: the compute stream runs dry while the host is held.
    Script dry;
    dry.compute(100);
    dry.compute(200, 0, Stream::transfer);
    const std::int32_t late = dry.record(Stream::transfer);
    const std::int32_t held = dry.block(late);
    dry.host(30);
    dry.compute(10);
    EXPECT_THAT(parts(dry),
                ElementsAre(Part{Cause::limiter, held, 100, 200}, Part{Cause::host, -1, 200, 230}));
    EXPECT_GT(block, 0);
}

TEST(ExposedWaits, LatencyBetweenAnEventAndItsStream) {
    Script script;
    script.compute(100);
    const std::int32_t gather = script.gather(150);
    script.wait(Stream::compute, script.record(Stream::gather), 4);
    script.compute(10);
    EXPECT_THAT(parts(script),
                ElementsAre(Part{Cause::gather, gather, 100, 150}, Part{Cause::latency, -1, 150, 154}));
}

TEST(ExposedWaits, ThroughAWaitOfTheOtherStream) {
    Script script;
    script.compute(10);
    const std::int32_t copy = script.add({.kind = OpKind::copy, .stream = Stream::pre_gather}, 40);
    script.join(Stream::gather, Stream::pre_gather);
    const std::int32_t gather = script.gather(50);
    script.join(Stream::compute, Stream::gather);
    script.compute(10);
    EXPECT_THAT(parts(script),
                ElementsAre(Part{Cause::copy, copy, 10, 40}, Part{Cause::gather, gather, 40, 90}));
}

TEST(ExposedWaits, CoverEveryPauseOfComputeAndNothingElse) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(seed);
        const Script script = random_script(seed);
        const Timeline timeline = script.played();
        std::int64_t busy = 0;
        std::int64_t first = -1;
        std::int64_t last = 0;
        for (std::size_t i = 0; i < script.schedule.ops.size(); ++i) {
            const Op& op = script.schedule.ops[i];
            const bool works = op.kind == OpKind::compute || op.kind == OpKind::collective ||
                               op.kind == OpKind::copy || op.kind == OpKind::to_host;
            const bool here = op.stream == Stream::compute &&
                              (works || op.kind == OpKind::record || op.kind == OpKind::wait);
            if (!here) {
                continue;
            }
            busy += works ? timeline.end_ns[i] - timeline.start_ns[i] : 0;
            // The stream's first operation: a pause in front of it is none.
            first = first < 0 ? (works ? timeline.start_ns[i] : timeline.end_ns[i]) : first;
            last = timeline.end_ns[i];
        }
        std::int64_t waited = 0;
        std::int64_t until = 0;
        for (const ExposedWait& wait : exposed_waits(script.schedule, timeline)) {
            EXPECT_GE(wait.start_ns, until);
            EXPECT_GT(wait.end_ns, wait.start_ns);
            until = wait.end_ns;
            waited += wait.end_ns - wait.start_ns;
        }
        EXPECT_EQ(busy + waited, last - first);
    }
}

TEST(IterationTimes, BeginWhereTheOneBeforeEnded) {
    Script script;
    script.compute(5);
    script.iteration();
    const std::int32_t gather = script.gather(30);
    script.join(Stream::compute, Stream::gather);
    script.compute(10);
    script.iteration();
    script.compute(20);
    const Timeline timeline = script.played();
    const auto waits = exposed_waits(script.schedule, timeline);
    ASSERT_EQ(waits.size(), 1U);
    EXPECT_EQ(waits.front().culprit, gather);
    const auto times = iteration_times(script.schedule, timeline, waits);
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[0].begin_ns, 5);
    EXPECT_EQ(times[0].end_ns, 40);
    EXPECT_EQ(times[0].exposed_ns, 25);
    EXPECT_EQ(times[1].begin_ns, 40);
    EXPECT_EQ(times[1].ns(), 20);
    EXPECT_EQ(times[1].waiting_ns, 0);
}

TEST(WithStragglers, GrowWithTheRanks) {
    // sqrt(2 ln 8) = 2.039; the 0.99^(1/8) quantile of the normal distribution is 3.022 (n = 512: 4.11).
    const StragglerTime eight = with_stragglers(1'000'000, 0.01, 8);
    EXPECT_EQ(eight.expected_ns, 1'020'393);
    EXPECT_NEAR(static_cast<double>(eight.p99_ns), 1'030'225, 20);
    EXPECT_NEAR(static_cast<double>(with_stragglers(1'000'000, 0.01, 512).p99_ns), 1'041'130, 200);
    EXPECT_EQ(with_stragglers(1'000'000, 0.01, 1).expected_ns, 1'000'000);
}

}  // namespace
}  // namespace fsdplan
