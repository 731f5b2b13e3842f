#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "fsdplan/allocator.hpp"

// What holds for every sequence of requests, under every kind of options.
namespace fsdplan {
namespace {

using State = CachingAllocator::State;

constexpr int seeds = 12;

const std::vector<std::string>& configurations() {
    static const std::vector<std::string> all{
        "",
        "expandable_segments:True",
        "max_split_size_mb:20",
        "max_split_size_mb:64,garbage_collection_threshold:0.6,per_process_memory_fraction:0.8",
        "large_segment_size_mb:33,roundup_power2_divisions:8",
        "expandable_segments:True,roundup_power2_divisions:[1:4,>:2],per_process_memory_fraction:0.7",
        "throw_on_cudamalloc_oom:True",
    };
    return all;
}

/// A random program, the same for the same seed, played on an allocator of 1 GiB.
class Player {
public:
    Player(unsigned seed, CachingAllocator& allocator) : random_(seed), allocator_(allocator) {}

    void play(int steps) {
        for (int step = 0; step < steps; ++step) {
            play_step();
        }
    }

    void free_all() {
        for (const BlockIndex block : live_) {
            allocator_.free(block);
        }
        live_.clear();
    }

    std::size_t live() const { return live_.size(); }

private:
    unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }

    void play_step() {
        const unsigned choice = below(100);
        if (choice < 50) {
            const double exponent = 7.0 + below(2000) / 100.0;
            const Allocation got = allocator_.allocate(Bytes{static_cast<std::int64_t>(std::exp2(exponent))},
                                                       static_cast<int>(below(3)));
            if (got.outcome == Allocation::Outcome::placed) {
                live_.push_back(got.block);
            }
        } else if (choice < 90 && !live_.empty()) {
            const std::size_t victim = below(static_cast<unsigned>(live_.size()));
            allocator_.free(live_[victim]);
            live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(victim));
        } else if (choice < 95 && !live_.empty()) {
            allocator_.record_stream(live_[below(static_cast<unsigned>(live_.size()))],
                                     static_cast<int>(below(3)));
        } else if (choice < 98) {
            allocator_.complete(static_cast<int>(below(3)));
        } else if (choice < 99) {
            allocator_.empty_cache();
        } else {
            allocator_.synchronize();
        }
    }

    std::minstd_rand random_;
    CachingAllocator& allocator_;
    std::vector<BlockIndex> live_;
};

void expect_sound(const CachingAllocator& allocator, std::size_t live) {
    std::int64_t reserved = 0;
    std::int64_t allocated = 0;
    std::int64_t active = 0;
    std::int64_t requested = 0;
    std::size_t blocks = 0;
    std::int64_t end = -1;
    for (const auto& run : allocator.layout()) {
        EXPECT_GE(run.address, end) << "runs overlap";
        end = run.address;
        State before = State::allocated;
        for (const auto& block : run.blocks) {
            EXPECT_EQ(block.address, end) << "blocks overlap or leave a gap";
            end += block.bytes;
            EXPECT_GT(block.bytes, 0);
            EXPECT_EQ(block.bytes % 512, 0);
            EXPECT_LE(block.requested_bytes, block.bytes);
            EXPECT_FALSE(before == State::free && block.state == State::free) << "two free neighbours";
            before = block.state;
            blocks += block.state == State::allocated ? 1 : 0;
            allocated += block.state == State::allocated ? block.bytes : 0;
            active += block.state != State::free ? block.bytes : 0;
            requested += block.requested_bytes;
        }
        EXPECT_EQ(end - run.address, run.bytes);
        reserved += run.bytes;
    }
    const AllocatorStatistics& s = allocator.statistics();
    EXPECT_EQ(blocks, live);
    EXPECT_EQ(s.reserved_bytes, reserved);
    EXPECT_EQ(s.allocated_bytes, allocated);
    EXPECT_EQ(s.active_bytes, active);
    EXPECT_EQ(s.requested_bytes, requested);
    EXPECT_GE(s.reserved_peak_bytes, s.reserved_bytes);
    EXPECT_GE(s.active_peak_bytes, s.active_bytes);
    EXPECT_GE(s.reserved_bytes, s.active_bytes);
    EXPECT_GE(allocator.device_free_bytes(), 0);
}

std::string shown(const CachingAllocator& allocator) {
    std::string out;
    for (const DriverCall& call : allocator.driver_calls()) {
        out += std::to_string(static_cast<int>(call.kind)) + " " + std::to_string(call.segment) + " " +
               std::to_string(call.offset_bytes) + " " + std::to_string(call.bytes) + "\n";
    }
    for (const auto& run : allocator.layout()) {
        for (const auto& block : run.blocks) {
            out += std::to_string(block.address) + " " + std::to_string(block.bytes) + " " +
                   std::to_string(static_cast<int>(block.state)) + "\n";
        }
    }
    return out;
}

template <class Law>
void for_each_case(const Law& law) {
    for (const std::string& conf : configurations()) {
        for (unsigned seed = 1; seed <= seeds; ++seed) {
            SCOPED_TRACE("\"" + conf + "\", seed " + std::to_string(seed));
            law(parse_alloc_conf(conf), seed);
            if (testing::Test::HasFailure()) {
                return;
            }
        }
    }
}

TEST(CachingAllocatorLaws, BlocksNeverOverlapAndCountsAddUp) {
    for_each_case([](const AllocatorOptions& options, unsigned seed) {
        CachingAllocator allocator(1_GiB, options);
        Player player(seed, allocator);
        for (int part = 0; part < 30 && !testing::Test::HasFailure(); ++part) {
            player.play(20);
            expect_sound(allocator, player.live());
        }
    });
}

TEST(CachingAllocatorLaws, WhatIsFreedMergesToWholeSegments) {
    for_each_case([](const AllocatorOptions& options, unsigned seed) {
        CachingAllocator allocator(1_GiB, options);
        Player player(seed, allocator);
        player.play(400);
        player.free_all();
        allocator.synchronize();
        allocator.free(allocator.allocate(1_B, 0).block);  // looks at the events
        for (const auto& run : allocator.layout()) {
            EXPECT_EQ(run.blocks.size(), 1U);
            EXPECT_EQ(run.blocks[0].state, State::free);
        }
        EXPECT_EQ(allocator.inactive_split_bytes(), 0);
        EXPECT_EQ(allocator.statistics().active_bytes, 0);
        EXPECT_EQ(allocator.statistics().requested_bytes, 0);
        allocator.empty_cache();
        EXPECT_TRUE(allocator.layout().empty());
        EXPECT_EQ(allocator.statistics().reserved_bytes, 0);
        EXPECT_EQ(allocator.statistics().segments, 0);
        EXPECT_EQ(allocator.device_free_bytes(), (1_GiB).count);
    });
}

TEST(CachingAllocatorLaws, ResetIsFresh) {
    CachingAllocator used(2_GiB);
    used.log_driver_calls(true);
    for_each_case([&](const AllocatorOptions& options, unsigned seed) {
        CachingAllocator fresh(1_GiB, options);
        fresh.log_driver_calls(true);
        Player(seed, fresh).play(400);
        used.reset(1_GiB, options);
        Player(seed, used).play(400);
        EXPECT_EQ(shown(used), shown(fresh));
        EXPECT_EQ(used.statistics(), fresh.statistics());
        used.reset();
        EXPECT_EQ(used.statistics(), AllocatorStatistics{});
        EXPECT_TRUE(used.layout().empty());
        Player(seed, used).play(400);
        EXPECT_EQ(shown(used), shown(fresh));
    });
}

TEST(CachingAllocatorLaws, ACopyGoesItsOwnWay) {
    for_each_case([](const AllocatorOptions& options, unsigned seed) {
        CachingAllocator first(1_GiB, options);
        Player(seed, first).play(200);
        CachingAllocator second = first;
        EXPECT_EQ(shown(second), shown(first));
        Player(seed + 100, second).play(200);
        CachingAllocator third = first;
        Player(seed + 100, third).play(200);
        EXPECT_EQ(shown(second), shown(third));
    });
}

}  // namespace
}  // namespace fsdplan
