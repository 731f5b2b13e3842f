#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "execute/fake_backend.hpp"
#include "simulate/lanes.hpp"
#include "simulate/schedules.hpp"

namespace fsdplan {
namespace {

using simulated::Script;
using test::FakeBackend;

constexpr Bytes plenty = 64_GiB;

ExecutionOptions once(Bytes memory = plenty) {
    return {.mesh = {.replicate = 1, .shard = 2},
            .memory = {.device = memory, .used_by_others = {}},
            .repeats = 1};
}

/// A gather, a kernel behind it and a reduction, in one iteration, with 4 MiB for the gathered parameters.
struct Step {
    Script script;
    std::int32_t allocated = 0;

    Step() {
        const std::int32_t buffer = script.buffer(4 << 20, Category::unsharded);
        script.iteration();
        allocated = script.allocate(buffer);
        script.gather(300);
        script.join(Stream::compute, Stream::gather);
        script.compute(500);
        script.join(Stream::reduce, Stream::compute);
        script.reduce(200);
        script.free(buffer);
        script.block(script.record(Stream::reduce));
    }
};

TEST(Execute, RunsWhatTheClockPlays) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
        Script script = simulated::random_script(seed);
        // The host of the executor is real: on the fake one it takes no time, nor does an event.
        for (std::size_t op = 0; op < script.schedule.ops.size(); ++op) {
            script.times.host_ns[op] = 0;
            if (!works_on_device(script.schedule.ops[op].kind)) {
                script.times.device_ns[op] = 0;
            }
        }
        FakeBackend backend(script.times.device_ns);
        const Execution out = execute(script.schedule, backend, once());
        const Timeline played = script.played();
        EXPECT_EQ(out.run.timeline.start_ns, played.start_ns) << "seed " << seed;
        EXPECT_EQ(out.run.timeline.end_ns, played.end_ns) << "seed " << seed;
        const MemoryProfile memory =
            device_memory(script.schedule, played, once().memory, FreeTiming::by_clock);
        EXPECT_EQ(out.run.memory->peak.allocated_bytes, memory.peak.allocated_bytes) << "seed " << seed;
        EXPECT_EQ(out.ranks[0].requested_bytes, program_memory(script.schedule).peak.allocated_bytes);
        EXPECT_EQ(out.run.memory->reserved_peak_bytes, memory.reserved_peak_bytes) << "seed " << seed;
        EXPECT_TRUE(backend.segments.empty());
    }
}

TEST(Execute, MeasuresAStep) {
    const Step step;
    FakeBackend backend(step.script.times.device_ns);
    const Execution out = execute(step.script.schedule, backend, once());
    EXPECT_EQ(out.run.method, Method::measured);
    EXPECT_EQ(out.run.step_ns, exactly(1000));
    EXPECT_EQ(out.sent_bytes, 200);
    ASSERT_EQ(out.run.collectives.size(), 2U);
    EXPECT_EQ(out.run.collectives[0].ns, exactly(300));
    EXPECT_EQ(out.run.collectives[1].origin, Origin::measured);
    ASSERT_EQ(out.ranks.size(), 2U);
    EXPECT_EQ(out.ranks[1].allocated_bytes, 4 << 20);
    EXPECT_EQ(out.ranks[1].requested_bytes, 4 << 20);
}

TEST(Execute, ADeviceWithLessMemoryThanTheBudgetIsAResult) {
    const Step step;
    FakeBackend backend(step.script.times.device_ns);
    backend.memory_bytes = 1 << 20;
    const Execution out = execute(step.script.schedule, backend, once());
    ASSERT_TRUE(out.run.memory->out_of_memory);
    EXPECT_EQ(out.run.memory->out_of_memory->op, step.allocated);
    EXPECT_EQ(out.run.memory->out_of_memory->requested_bytes, 4 << 20);
    EXPECT_EQ(out.run.step_ns, exactly(1000));  // the ranks stay in step
    EXPECT_TRUE(out.ranks[0].out_of_memory);
}

TEST(Execute, ABudgetThatIsTooSmallIsAResult) {
    const Step step;
    FakeBackend backend(step.script.times.device_ns);
    const Execution out = execute(step.script.schedule, backend, once(1_MiB));
    ASSERT_TRUE(out.run.memory->out_of_memory);
    EXPECT_EQ(out.run.memory->out_of_memory->op, step.allocated);
    EXPECT_TRUE(backend.segments.empty());
}

TEST(Execute, AFailingDeviceIsAnErrorAndGetsItsMemoryBack) {
    const Step step;
    FakeBackend backend(step.script.times.device_ns);
    backend.failing_op = step.allocated + 1;
    try {
        execute(step.script.schedule, backend, once());
        FAIL() << "nothing was thrown";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::machine);
        EXPECT_STREQ(error.what(), "fakeLaunch: the device is gone");
    }
    EXPECT_TRUE(backend.segments.empty());
}

TEST(Execute, RefusesRanksThatWereAskedForSomethingElse) {
    const Step step;
    FakeBackend backend(step.script.times.device_ns);
    backend.others = {17};
    try {
        execute(step.script.schedule, backend, once());
        FAIL() << "nothing was thrown";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "run: rank 1 was asked to execute another schedule than rank 0");
    }
}

TEST(Compare, RunningOutOfMemoryIsNeverWithin) {
    const Step step;
    FakeBackend backend(step.script.times.device_ns);
    Execution measured = execute(step.script.schedule, backend, once());
    measured.ranks[1].out_of_memory = true;
    const std::vector<PredictionError> errors = compare(step.script.schedule, measured.run, measured, {});
    const auto found = std::ranges::find(errors, "out_of_memory_ranks", &PredictionError::key);
    EXPECT_EQ(found->measured, 1);
    EXPECT_FALSE(found->within);
}

TEST(Scaled, LeavesCollectivesAndAllocations) {
    Script script;
    script.buffer(4096, Category::activation);
    script.add({.kind = OpKind::compute, .bytes = 1000, .flops = 3000});
    script.add({.kind = OpKind::copy, .bytes = 500});
    script.gather(1);
    const Schedule half = scaled(script.schedule, 0.5);
    EXPECT_EQ(half.ops[0].flops, 1500);
    EXPECT_EQ(half.ops[0].bytes, 500);
    EXPECT_EQ(half.ops[1].bytes, 250);
    EXPECT_EQ(half.collectives, script.schedule.collectives);
    EXPECT_EQ(half.buffers, script.schedule.buffers);
}

TEST(Compare, TakesTheRankThatIsFurthestOff) {
    const Step step;
    FakeBackend backend(step.script.times.device_ns);
    Execution measured = execute(step.script.schedule, backend, once());
    auto predicted = measured.run;
    measured.ranks[1].allocated_bytes += 512;
    measured.ranks[1].step_ns = 1300;
    const std::vector<PredictionError> errors =
        compare(step.script.schedule, predicted, measured, {.tolerance = 0.25});
    const auto of = [&](std::string_view key) {
        return *std::ranges::find(errors, key, &PredictionError::key);
    };
    EXPECT_EQ(of("allocated_bytes").measured - of("allocated_bytes").predicted, 512);
    EXPECT_FALSE(of("allocated_bytes").within);  // bytes are exact or wrong
    EXPECT_DOUBLE_EQ(*of("step_ns").relative(), 0.3);
    EXPECT_FALSE(of("step_ns").within);
    EXPECT_FALSE(of("exposed_ns").judged);
    EXPECT_FALSE(all_within(errors));
}

TEST(Compare, LeavesTimesOfOtherDevicesUnjudged) {
    const Step step;
    FakeBackend backend(step.script.times.device_ns);
    Execution measured = execute(step.script.schedule, backend, once());
    measured.sent_bytes = sent_bytes(traffic_of(step.script.schedule));
    for (RankResult& rank : measured.ranks) {
        rank.sent_bytes = measured.sent_bytes;
    }
    auto predicted = measured.run;
    predicted.step_ns = exactly(10);
    EXPECT_FALSE(all_within(compare(step.script.schedule, predicted, measured, {})));
    EXPECT_TRUE(all_within(compare(step.script.schedule, predicted, measured, {.judge_times = false})));
}

}  // namespace
}  // namespace fsdplan
