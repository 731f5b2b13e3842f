#include "fsdplan/allocator.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace fsdplan {
namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20U;

TEST(CachingAllocator, ASmallRequestTakesASmallSegment) {
    CachingAllocator allocator(1_GiB);
    const Allocation got = allocator.allocate(1000_B, 0);
    EXPECT_EQ(got.outcome, Allocation::Outcome::placed);
    EXPECT_EQ(got.segment, 0);
    EXPECT_EQ(got.offset_bytes, 0);
    EXPECT_EQ(got.block_bytes, 1024);
    EXPECT_EQ(allocator.statistics().reserved_bytes, 2 * mib);
    EXPECT_EQ(allocator.statistics().requested_bytes, 1000);
    EXPECT_EQ(allocator.inactive_split_bytes(), 2 * mib - 1024);
    EXPECT_EQ(allocator.device_free_bytes(), 1022 * mib);
}

TEST(CachingAllocator, NothingIsNoBlock) {
    CachingAllocator allocator(1_GiB);
    EXPECT_EQ(allocator.allocate(0_B, 0).outcome, Allocation::Outcome::empty);
    EXPECT_EQ(allocator.statistics(), AllocatorStatistics{});
}

TEST(CachingAllocator, WhatDoesNotFitLeavesTheCountsBehind) {
    CachingAllocator allocator(64_MiB);
    EXPECT_TRUE(allocator.allocate(65_MiB, 0).out_of_memory());
    EXPECT_EQ(allocator.statistics().ooms, 1);
    EXPECT_EQ(allocator.statistics().alloc_retries, 1);
    EXPECT_EQ(allocator.statistics().reserved_bytes, 0);
}

// 2^53 / 512 does not fit beside the index of a block in 64 bits; it once wrapped and found the free block.
TEST(CachingAllocator, TheLargestRequestFindsNoBlock) {
    CachingAllocator allocator(1_GiB);
    allocator.free(allocator.allocate(12_MiB, 0).block);
    EXPECT_TRUE(allocator.allocate(Bytes{largest_total}, 0).out_of_memory());
}

TEST(CachingAllocator, WhatOthersUseIsNotThere) {
    CachingAllocator allocator(64_MiB);
    allocator.set_used_by_others(40_MiB);
    EXPECT_TRUE(allocator.allocate(30_MiB, 0).out_of_memory());
    EXPECT_FALSE(allocator.allocate(24_MiB, 0).out_of_memory());
}

TEST(CachingAllocator, WrongMemoryAndFractionsAreErrors) {
    EXPECT_THROW(CachingAllocator{Bytes{-1}}, Error);
    EXPECT_THROW(CachingAllocator{CachingAllocator::most_memory + 1_B}, Error);
    CachingAllocator allocator(1_GiB);
    EXPECT_THROW(allocator.set_memory_fraction(1.5), Error);
    EXPECT_THROW(allocator.set_memory_fraction(std::numeric_limits<double>::quiet_NaN()), Error);
}

// A block of 12 MiB that another stream has used up to position 70 is freed; which segment the next request
// gets says whether the event was seen complete.
std::int64_t next_segment(std::int64_t reached) {
    CachingAllocator allocator(1_GiB);
    const Allocation first = allocator.allocate(12_MiB, 0);
    allocator.record_stream(first.block, 1);
    allocator.issued(1, 70);
    allocator.free(first.block);
    allocator.issued(1, 90);  // later work does not matter
    allocator.reached_everywhere(reached);
    return allocator.allocate(12_MiB, 0).segment;
}

TEST(CachingAllocator, AnEventIsCompleteWhenTheDeviceHasReachedIt) {
    EXPECT_EQ(next_segment(69), 1);
    EXPECT_EQ(next_segment(70), 0);
    EXPECT_EQ(next_segment(std::numeric_limits<std::int64_t>::max()), 0);
}

TEST(CachingAllocator, OneStreamMayBeAheadOfTheOthers) {
    CachingAllocator allocator(1_GiB);
    const Allocation a = allocator.allocate(12_MiB, 0);
    const Allocation b = allocator.allocate(14_MiB, 0);
    allocator.record_stream(a.block, 1);
    allocator.record_stream(b.block, 2);
    allocator.issued(1, 10);
    allocator.issued(2, 10);
    allocator.free(a.block);
    allocator.free(b.block);
    EXPECT_EQ(allocator.statistics().allocated_bytes, 0);
    EXPECT_EQ(allocator.statistics().active_bytes, 26 * mib);
    allocator.reached(2, 10);
    EXPECT_EQ(allocator.allocate(14_MiB, 0).segment, b.segment);
    EXPECT_EQ(allocator.allocate(12_MiB, 0).segment, 2);
}

TEST(CachingAllocator, WithoutAClockEventsWaitForASync) {
    CachingAllocator allocator(1_GiB);
    const Allocation first = allocator.allocate(12_MiB, 0);
    allocator.record_stream(first.block, 1);
    allocator.free(first.block);
    EXPECT_EQ(allocator.allocate(12_MiB, 0).segment, 1);
    allocator.synchronize();
    EXPECT_EQ(allocator.allocate(12_MiB, 0).segment, 0);
}

TEST(CachingAllocator, ARetryWaitsForTheDeviceAndSaysSo) {
    CachingAllocator allocator(64_MiB);
    const Allocation first = allocator.allocate(40_MiB, 0);
    allocator.record_stream(first.block, 1);
    allocator.free(first.block);
    EXPECT_FALSE(allocator.allocate(50_MiB, 0).out_of_memory());
    EXPECT_EQ(allocator.statistics().alloc_retries, 1);
    EXPECT_EQ(allocator.statistics().device_waits, 2);  // for the event, and for the segment given back
}

TEST(CachingAllocator, LiveBlocksAreVisited) {
    CachingAllocator allocator(1_GiB);
    const Allocation a = allocator.allocate(3_MiB, 0);
    const Allocation b = allocator.allocate(4_MiB, 1);
    allocator.record_stream(b.block, 0);
    allocator.free(b.block);
    allocator.free(allocator.allocate(5_MiB, 0).block);
    std::string seen;
    allocator.for_each_live([&](const CachingAllocator::BlockView& block) {
        seen += std::to_string(block.bytes / mib) + "@" + std::to_string(block.stream) +
                (block.state == CachingAllocator::State::waiting ? " waiting; " : "; ");
    });
    EXPECT_EQ(seen, "3@0; 4@1 waiting; ");
    EXPECT_NE(a.block, b.block);
}

TEST(CachingAllocator, ABlockThatIsFreedTwiceIsABug) {
    CachingAllocator allocator(1_GiB);
    const Allocation first = allocator.allocate(1_MiB, 0);
    allocator.free(first.block);
    EXPECT_DEATH(allocator.free(first.block), "a block is freed once");
}

}  // namespace
}  // namespace fsdplan
