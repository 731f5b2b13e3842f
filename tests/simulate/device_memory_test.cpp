#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "schedules.hpp"

namespace fsdplan {
namespace {

using simulated::Script;
using testing::ElementsAre;

constexpr std::int64_t mib = std::int64_t{1} << 20U;

MemorySetup with(Bytes device) {
    return {.device = device};
}

/// Gathers of FSDP1: a buffer of 30 MiB of the gather stream that compute uses for 1,000 ns, freed by a host
/// that needs 10 ns to come round to the next.
Script run_ahead(int units, bool limited) {
    Script script;
    std::vector<std::int32_t> freed;
    const std::int32_t full = script.buffer(30 * mib, Category::unsharded, Stream::gather);
    for (int i = 0; i < units; ++i) {
        if (limited && freed.size() >= 2) {
            script.block(freed.front());
            freed.erase(freed.begin());
        }
        script.allocate(full);
        script.times.host_ns.back() = 10;
        script.join(Stream::compute, Stream::gather);
        script.compute(1000);
        script.use(full, Stream::compute);
        script.free(full);
        freed.push_back(script.record(Stream::compute));
    }
    return script;
}

std::int64_t reserved(const Script& script, FreeTiming timing, Bytes device = 80_GiB) {
    return device_memory(script.schedule, script.played(), with(device), timing).reserved_peak_bytes.value();
}

TEST(DeviceMemory, CountsBlocksAndSegments) {
    Script script;
    const std::int32_t small = script.buffer(1000, Category::shard);
    const std::int32_t large = script.buffer(30 * mib + 1, Category::unsharded);
    script.allocate(small);
    script.allocate(large);
    script.free(large);
    const MemoryProfile profile =
        device_memory(script.schedule, script.played(), with(80_GiB), FreeTiming::by_clock);
    ASSERT_EQ(profile.changes.size(), 3U);
    EXPECT_EQ(profile.changes[0].allocated_bytes, 1024);
    EXPECT_EQ(profile.changes[0].reserved_bytes, 2 * mib);
    // 30 MiB and 1 byte need a segment of 32 MiB, of which 30 MiB + 512 B are split off: 2 MiB - 512 B are
    // left.
    EXPECT_EQ(profile.changes[1].delta_bytes, 30 * mib + 512);
    EXPECT_EQ(profile.peak.allocated_bytes, 30 * mib + 512 + 1024);
    EXPECT_EQ(profile.reserved_peak_bytes, 34 * mib);
    EXPECT_EQ(profile.alloc_retries, 0);
    EXPECT_EQ(profile.changes[2].allocated_bytes, 1024);
}

TEST(DeviceMemory, AHostThatRunsAheadFindsNoFreeBlock) {
    const Script script = run_ahead(6, false);
    // The host is done with all six units before the first computation ends.
    EXPECT_EQ(reserved(script, FreeTiming::by_clock), 180 * mib);
    EXPECT_EQ(reserved(script, FreeTiming::at_once), 30 * mib);
    EXPECT_EQ(reserved(script, FreeTiming::when_known), 180 * mib);
}

TEST(DeviceMemory, TheLimiterBoundsHowFarItRuns) {
    const Script script = run_ahead(6, true);
    // Two may be freed but not finished, the third is in use.
    EXPECT_EQ(reserved(script, FreeTiming::when_known), 60 * mib);
    EXPECT_EQ(reserved(script, FreeTiming::by_clock), 60 * mib);
    EXPECT_EQ(reserved(script, FreeTiming::at_once), 30 * mib);
}

TEST(DeviceMemory, OnlyTheProgramKnowsWhatAStreamWaitedFor) {
    Script script;
    const std::int32_t full = script.buffer(30 * mib, Category::unsharded, Stream::gather);
    script.allocate(full);
    script.compute(1000);
    script.use(full, Stream::compute);
    script.free(full);
    script.join(Stream::reduce, Stream::compute);
    script.block(script.record(Stream::reduce));
    script.allocate(full);
    // The host waited for a stream that had waited for the computation, but not for the computation itself.
    EXPECT_EQ(reserved(script, FreeTiming::when_known), 30 * mib);
    EXPECT_EQ(reserved(script, FreeTiming::when_waited_for), 60 * mib);
}

TEST(DeviceMemory, AFastDeviceHasCaughtUp) {
    Script script = run_ahead(4, false);
    for (std::int64_t& ns : script.times.device_ns) {
        ns = std::min<std::int64_t>(ns, 5);
    }
    EXPECT_EQ(reserved(script, FreeTiming::by_clock), 30 * mib);
}

TEST(DeviceMemory, RunningOutIsAValue) {
    Script script;
    const std::int32_t half = script.buffer(60 * mib, Category::shard);
    const std::int32_t other = script.buffer(50 * mib, Category::activation);
    script.allocate(half);
    const std::int32_t fails = script.allocate(other);
    script.free(half);
    AllocatorLog log;
    const MemoryProfile profile =
        device_memory(script.schedule, script.played(), with(100_MiB), FreeTiming::by_clock, &log);
    ASSERT_TRUE(profile.out_of_memory.has_value());
    EXPECT_EQ(profile.out_of_memory->op, fails);
    EXPECT_EQ(profile.out_of_memory->requested_bytes, 50 * mib);
    EXPECT_EQ(profile.out_of_memory->allocated_bytes, 60 * mib);
    EXPECT_EQ(profile.out_of_memory->free_bytes, 40 * mib);
    EXPECT_EQ(profile.changes.size(), 1U);
    EXPECT_EQ(log.events.back().kind, AllocatorEvent::Kind::out_of_memory);
}

TEST(DeviceMemory, TheLogTellsADelayedFree) {
    const Script script = run_ahead(2, false);
    AllocatorLog log;
    device_memory(script.schedule, script.played(), with(80_GiB), FreeTiming::by_clock, &log);
    std::vector<AllocatorEvent::Kind> kinds;
    for (const AllocatorEvent& event : log.events) {
        kinds.push_back(event.kind);
    }
    using enum AllocatorEvent::Kind;
    EXPECT_THAT(kinds,
                ElementsAre(segment_alloc, alloc, free_requested, segment_alloc, alloc, free_requested));
    ASSERT_EQ(log.segments.size(), 2U);
    EXPECT_EQ(log.segments[0].bytes, 30 * mib);
    EXPECT_EQ(log.segments[0].address, log.events[0].address);
    EXPECT_TRUE(log.segments[0].blocks.at(0).waiting);
    EXPECT_EQ(log.segments[1].address, log.segments[0].address + 30 * mib);
}

/// What every snapshot has to keep, on schedules of all kinds and a device that is too small for some.
TEST(DeviceMemory, TheLogIsConsistent) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(seed);
        const Script script = simulated::random_script(seed);
        AllocatorLog log;
        const MemorySetup setup{.device = seed % 2 == 0 ? 80_GiB : 44_MiB,
                                .allocator = {.expandable_segments = seed % 4 >= 2}};
        const auto timing = static_cast<FreeTiming>(seed % 3);
        const MemoryProfile profile = device_memory(script.schedule, script.played(), setup, timing, &log);
        std::map<std::int64_t, std::int64_t> live;
        std::map<std::int64_t, std::int64_t> leaving;
        std::int64_t reserved = 0;
        for (const AllocatorEvent& event : log.events) {
            switch (event.kind) {
                case AllocatorEvent::Kind::alloc:
                    ASSERT_TRUE(live.emplace(event.address, event.bytes).second);
                    ASSERT_FALSE(leaving.contains(event.address));
                    break;
                case AllocatorEvent::Kind::free_requested:
                    ASSERT_EQ(live.at(event.address), event.bytes);
                    live.erase(event.address);
                    leaving[event.address] = event.bytes;
                    break;
                case AllocatorEvent::Kind::free_completed:
                    ASSERT_EQ(leaving.at(event.address), event.bytes);
                    leaving.erase(event.address);
                    break;
                case AllocatorEvent::Kind::segment_alloc:
                case AllocatorEvent::Kind::segment_map:
                    reserved += event.bytes;
                    break;
                case AllocatorEvent::Kind::segment_free:
                case AllocatorEvent::Kind::segment_unmap:
                    reserved -= event.bytes;
                    break;
                case AllocatorEvent::Kind::out_of_memory:
                    ASSERT_TRUE(profile.out_of_memory.has_value());
                    break;
            }
        }
        for (const AllocatorSegment& segment : log.segments) {
            reserved -= segment.bytes;
            std::int64_t at = segment.address;
            for (const AllocatorBlock& block : segment.blocks) {
                ASSERT_EQ(block.address, at);
                ASSERT_LE(block.requested_bytes, block.bytes);
                at += block.bytes;
                if (block.buffer >= 0) {
                    std::map<std::int64_t, std::int64_t>& where = block.waiting ? leaving : live;
                    ASSERT_EQ(where.at(block.address), block.requested_bytes);
                    where.erase(block.address);
                }
            }
            ASSERT_EQ(at, segment.address + segment.bytes);
        }
        EXPECT_TRUE(live.empty());
        EXPECT_TRUE(leaving.empty());
        EXPECT_EQ(reserved, 0);
    }
}

TEST(DeviceMemory, TheClockLiesBetweenTheExtremes) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        SCOPED_TRACE(seed);
        const Script script = simulated::random_script(seed);
        // One size for all, so that no packing anomaly hides the order.
        Script even = script;
        for (Buffer& buffer : even.schedule.buffers) {
            buffer.bytes = 30 * mib;
        }
        EXPECT_LE(reserved(even, FreeTiming::at_once), reserved(even, FreeTiming::by_clock));
        EXPECT_LE(reserved(even, FreeTiming::by_clock), reserved(even, FreeTiming::when_known));
    }
}

TEST(Simulate, WithoutRetriesOneArrayPassSaysIt) {
    Script script = run_ahead(3, true);
    script.iteration();
    script.gather(0);
    const Cluster cluster = find_cluster({});
    const fsdplan::Run run = simulate(script.schedule, cluster, {.pricing = {.mesh = {.shard = 8}}});
    EXPECT_EQ(run.method, Method::array_pass);
    EXPECT_EQ(run.memory->alloc_retries, 0);
    EXPECT_GT(run.step_ns.value, 0);
    EXPECT_LE(run.step_ns.low, run.step_ns.value);
    EXPECT_GE(run.step_ns.high, run.step_ns.value);
    ASSERT_TRUE(run.stragglers.has_value());
    EXPECT_GT(run.stragglers->p99_ns, run.stragglers->expected_ns);
    EXPECT_LE(run.reserved_bytes->low, run.reserved_bytes->value);
    // Context and one communicator, 768 MiB together, come on top.
    EXPECT_EQ(run.process_bytes->value, run.reserved_bytes->value + 768 * mib);
    EXPECT_EQ(run.collectives.size(), 1U);
}

TEST(Simulate, ARetryStallsTheDeviceAndTheEventSimulatorSaysSo) {
    // 60 MiB fit once into 100 MiB: the second buffer, of another stream, needs what the first has freed.
    Script script;
    const std::int32_t first = script.buffer(60 * mib, Category::unsharded, Stream::gather);
    const std::int32_t second = script.buffer(60 * mib, Category::activation);
    script.iteration();
    script.allocate(first);
    script.add({.kind = OpKind::compute, .launches = 1, .bytes = 1'000'000'000});
    script.use(first, Stream::compute);
    script.free(first);
    const std::int32_t retries = script.allocate(second);
    const std::int32_t after = script.add({.kind = OpKind::compute, .launches = 1, .bytes = 1'000'000});
    const std::int32_t pinned = script.buffer(mib, Category::gradient_shard);
    script.schedule.buffers.back().on_host = true;
    const std::int32_t on_host = script.allocate(pinned);
    const Cluster cluster = find_cluster({});
    const SimulationOptions options{.memory = with(100_MiB)};
    AllocatorLog log;
    const fsdplan::Run run = simulate(script.schedule, cluster, options, &log);
    EXPECT_EQ(run.method, Method::event_simulator);
    EXPECT_EQ(run.memory->alloc_retries, 1);
    EXPECT_FALSE(run.memory->out_of_memory.has_value());
    const auto at = static_cast<std::size_t>(retries);
    // The device drains, then 20 ms, a segment is given back and one taken at 1 ms each.
    EXPECT_EQ(run.timeline.end_ns[at], run.timeline.end_ns[1] + 22'000'000);
    // Pinned memory is none of the allocator's: it does not pay for the segments once more.
    const auto beside = static_cast<std::size_t>(on_host);
    EXPECT_EQ(run.timeline.end_ns[beside], run.timeline.issued_ns[beside]);
    ASSERT_EQ(run.waits.size(), 2U);
    EXPECT_EQ(run.waits[0].op, after);
    EXPECT_EQ(run.waits[0].cause, Cause::memory);
    EXPECT_EQ(run.waits[0].culprit, retries);
    EXPECT_EQ(run.waits[1].cause, Cause::host);
    const fsdplan::Run roomy = simulate(script.schedule, cluster, {});
    EXPECT_EQ(roomy.method, Method::array_pass);
    EXPECT_GT(run.step_ns.value, roomy.step_ns.value + 22'000'000 - 1'000'000);
}

TEST(Simulate, RetriesAsideTheEventSimulatorsMemoryIsTheArrayPasss) {
    // A contention too weak to matter makes the event simulator run: times and memory stay the same.
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE(seed);
        Script script = simulated::random_script(seed);
        const Cluster cluster = find_cluster({});
        SimulationOptions options{.pricing = {.mesh = {.shard = 8}}};
        const fsdplan::Run fast = simulate(script.schedule, cluster, options);
        options.contention.collective_permille = 999;
        const fsdplan::Run events = simulate(script.schedule, cluster, options);
        EXPECT_EQ(events.method, Method::event_simulator);
        EXPECT_EQ(fast.method, Method::array_pass);
        EXPECT_EQ(fast.memory->peak.allocated_bytes, events.memory->peak.allocated_bytes);
        EXPECT_EQ(fast.memory->iteration_peak_bytes, events.memory->iteration_peak_bytes);
        EXPECT_EQ(fast.memory->changes.size(), events.memory->changes.size());
        EXPECT_GE(events.step_ns.value, fast.step_ns.value - fast.step_ns.value / 100);
    }
}

}  // namespace
}  // namespace fsdplan
