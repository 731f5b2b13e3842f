#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fsdplan/simulate.hpp"
#include "simulate/memory_log.hpp"

namespace fsdplan {

/// Carries a schedule's memory operations out on a caching allocator and writes down what comes of it. How
/// far the device is, the caller tells the allocator before each operation.
class DeviceMemory {
public:
    DeviceMemory(const Schedule& schedule, const MemorySetup& setup, AllocatorLog* log);

    CachingAllocator& allocator() { return allocator_; }
    /// Streams that used the buffer since it was allocated, a bit each.
    std::uint32_t users(std::size_t buffer) const { return users_[buffer]; }
    bool out_of_memory() const { return log_.profile().out_of_memory.has_value(); }
    /// Segments (or runs of pages) that the last operation took or gave back.
    std::int64_t segments_changed() const { return segments_changed_; }

    /// In front of every operation that apply() gets.
    void begin(std::size_t op) { log_.begin(schedule_, op); }
    /// An allocate, free, use or relabel at the host's time. Not after out_of_memory().
    void apply(std::size_t op, std::int64_t time_ns);

    MemoryProfile take();

private:
    struct Pending {
        BlockIndex block = no_block;
        AllocatorEvent event;
    };

    void allocate(std::size_t op, std::int64_t time_ns);
    void free(std::size_t op, std::int64_t time_ns);
    void write_down(std::size_t op, std::int64_t time_ns);
    void write_completed(std::int64_t time_ns);
    void write_segments();

    const Schedule& schedule_;
    CachingAllocator allocator_;
    MemoryLog log_;
    AllocatorLog* events_;
    std::vector<BlockIndex> blocks_;  // of each buffer
    std::vector<std::int64_t> addresses_;
    std::vector<std::uint32_t> users_;
    std::int64_t segments_changed_ = 0;

    // For the log alone.
    std::vector<Pending> pending_;    // freed, but perhaps not completely
    std::vector<std::int64_t> base_;  // address of each segment, by its number
    std::vector<std::int64_t> size_;  // … and bytes
    std::vector<int> segment_stream_;
    std::int64_t next_base_ = 0;
};

}  // namespace fsdplan
