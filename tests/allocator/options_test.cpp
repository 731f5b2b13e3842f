#include <gtest/gtest.h>

#include <string>

#include "fsdplan/allocator.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20U;

std::string fault_of(std::string_view text) {
    try {
        parse_alloc_conf(text);
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

TEST(AllocConf, NothingIsAllDefaults) {
    const AllocatorOptions options = parse_alloc_conf("");
    EXPECT_FALSE(options.expandable_segments);
    EXPECT_EQ(options.large_segment_bytes, 20 * mib);
    EXPECT_EQ(options.max_split_bytes, AllocatorOptions::unlimited);
    EXPECT_EQ(options.per_process_memory_fraction, 1.0);
}

TEST(AllocConf, ReadsEveryKey) {
    const AllocatorOptions options = parse_alloc_conf(
        "expandable_segments:True, max_split_size_mb:64,max_non_split_rounding_mb:32,"
        "garbage_collection_threshold:0.6,per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True,"
        "large_segment_size_mb:21,roundup_power2_divisions:4,backend:native,pinned_num_register_threads:8,");
    EXPECT_TRUE(options.expandable_segments);
    EXPECT_TRUE(options.throw_on_cudamalloc_oom);
    EXPECT_EQ(options.max_split_bytes, 64 * mib);
    EXPECT_EQ(options.max_non_split_rounding_bytes, 32 * mib);
    EXPECT_EQ(options.large_segment_bytes, 21 * mib);
    EXPECT_EQ(options.garbage_collection_threshold, 0.6);
    EXPECT_EQ(options.per_process_memory_fraction, 0.5);
    EXPECT_EQ(options.roundup_power2_divisions[0], 4);
    EXPECT_EQ(options.roundup_power2_divisions[15], 4);
}

// The first entry also stands for what is smaller, > for what is larger than the entry before, and sizes that
// are not named have no divisions.
TEST(AllocConf, DivisionsBySize) {
    const auto divisions =
        parse_alloc_conf("roundup_power2_divisions:[4:8,64:2,>:1]").roundup_power2_divisions;
    const std::array<std::int64_t, 16> expected{8, 8, 8, 0, 0, 0, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    EXPECT_EQ(divisions, expected);
}

TEST(AllocConf, FaultsNameTheKey) {
    EXPECT_EQ(fault_of("max_split_size_mb=64"),
              "PYTORCH_ALLOC_CONF: expected \":\" after \"max_split_size_mb=64\", found the end");
    EXPECT_EQ(fault_of("max_split:64"),
              "PYTORCH_ALLOC_CONF: unknown key \"max_split\"; did you mean \"max_split_size_mb\"?");
    EXPECT_EQ(fault_of("expandable_segments:true"),
              "PYTORCH_ALLOC_CONF: expandable_segments: expected True or False, found \"true\"");
    EXPECT_EQ(fault_of("max_split_size_mb:-64"),
              "PYTORCH_ALLOC_CONF: max_split_size_mb: expected a whole number, found \"-64\"");
    EXPECT_EQ(fault_of("max_split_size_mb:"), "PYTORCH_ALLOC_CONF: expected a number, found the end");
    EXPECT_EQ(
        fault_of("large_segment_size_mb:64,max_split_size_mb:32"),
        "PYTORCH_ALLOC_CONF: max_split_size_mb has to be at least the size of large segments, 64, found 32");
    EXPECT_EQ(fault_of("roundup_power2_divisions:[4:8"),
              "PYTORCH_ALLOC_CONF: expected \",\" after "
              "\"roundup_power2_divisions\", found the end");
    EXPECT_EQ(fault_of("backend:cudaMallocAsync"),
              "PYTORCH_ALLOC_CONF: backend: only native is modelled, found \"cudaMallocAsync\"");
    EXPECT_EQ(fault_of("garbage_collection_threshold:nan"),
              "PYTORCH_ALLOC_CONF: garbage_collection_threshold: expected a number, found \"nan\"");
}

TEST(AllocConf, ASplitLimitBeyondAnyDeviceIsNone) {
    const AllocatorOptions options = parse_alloc_conf("max_split_size_mb:99999999999999999999");
    EXPECT_GE(options.max_split_bytes, CachingAllocator::most_memory.count);
}

}  // namespace
}  // namespace fsdplan
