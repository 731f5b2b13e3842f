#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules.hpp"

namespace fsdplan {
namespace {

using simulated::Script;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(ProgramMemory, FollowsTheProgram) {
    Script script;
    const std::int32_t shard = script.buffer(1000, Category::shard);
    const std::int32_t full = script.buffer(8000, Category::unsharded, Stream::gather);
    const std::int32_t saved = script.buffer(500, Category::activation);
    script.allocate(shard);
    script.iteration();
    script.allocate(full);
    const std::int32_t peak = script.allocate(saved);
    script.free(full);
    script.iteration();
    script.free(saved);
    const MemoryProfile profile = program_memory(script.schedule);
    EXPECT_EQ(profile.peak.op, peak);
    EXPECT_EQ(profile.peak.allocated_bytes, 9500);
    EXPECT_THAT(live_at_peak(profile), ElementsAre(shard, full, saved));
    EXPECT_EQ(profile.peak.by_category[static_cast<std::size_t>(Category::unsharded)], 8000);
    EXPECT_THAT(profile.iteration_peak_bytes, ElementsAre(9500, 1500));
    ASSERT_EQ(profile.changes.size(), 5U);
    EXPECT_EQ(profile.changes.back().delta_bytes, -500);
    EXPECT_EQ(profile.changes.back().allocated_bytes, 1000);
    EXPECT_FALSE(profile.reserved_peak_bytes.has_value());
    EXPECT_FALSE(profile.out_of_memory.has_value());
}

TEST(ProgramMemory, ARelabelMovesBytesToAnotherLine) {
    Script script;
    const std::int32_t gradient = script.buffer(64, Category::reduce_output);
    script.allocate(gradient);
    script.relabel(gradient, Category::gradient_shard);
    script.free(gradient);
    const MemoryProfile profile = program_memory(script.schedule);
    EXPECT_EQ(profile.peak.allocated_bytes, 64);
    ASSERT_EQ(profile.changes.size(), 4U);
    const auto after = bytes_by_category(profile, 3);
    EXPECT_EQ(after[static_cast<std::size_t>(Category::gradient_shard)], 64);
    EXPECT_EQ(after[static_cast<std::size_t>(Category::reduce_output)], 0);
    EXPECT_EQ(profile.changes.back().category, Category::gradient_shard);
}

TEST(ProgramMemory, PinnedHostMemoryIsCountedApart) {
    Script script;
    const std::int32_t shard = script.buffer(4096, Category::shard);
    script.schedule.buffers.front().on_host = true;
    script.allocate(shard);
    const MemoryProfile profile = program_memory(script.schedule);
    EXPECT_EQ(profile.peak.allocated_bytes, 0);
    EXPECT_THAT(live_at_peak(profile), IsEmpty());
    EXPECT_EQ(profile.host_peak_bytes, 4096);
}

TEST(ProgramMemory, CategoriesAddUpToWhatIsAllocated) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        SCOPED_TRACE(seed);
        const Script script = simulated::random_script(seed);
        const MemoryProfile profile = program_memory(script.schedule);
        std::int64_t peak = 0;
        for (std::size_t i = 0; i < profile.changes.size(); ++i) {
            std::int64_t sum = 0;
            for (const std::int64_t bytes : bytes_by_category(profile, i + 1)) {
                EXPECT_GE(bytes, 0);
                sum += bytes;
            }
            EXPECT_EQ(sum, profile.changes[i].allocated_bytes);
            peak = std::max(peak, sum);
        }
        EXPECT_EQ(profile.peak.allocated_bytes, peak);
        std::int64_t live = 0;
        for (const std::int32_t buffer : live_at_peak(profile)) {
            live += script.schedule.buffers[static_cast<std::size_t>(buffer)].bytes;
        }
        EXPECT_EQ(live, peak);
    }
}

}  // namespace
}  // namespace fsdplan
