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
    /// Streams that have used the buffer that operation `op` is about since it was allocated, a bit each.
    std::uint32_t users(std::size_t op) const {
        return users_[static_cast<std::size_t>(schedule_.ops[op].target)];
    }
    bool out_of_memory() const { return log_.profile().out_of_memory.has_value(); }
    /// Segments (or runs of pages) that the last allocation took or gave back.
    std::int64_t segments_changed() const;

    // The operations, none after out_of_memory(). The host's time goes into the log of events alone.
    void allocate(std::size_t op, std::int64_t time_ns);
    void free(std::size_t op, std::int64_t time_ns);
    void use(std::size_t op);
    void relabel(std::size_t op);
    /// Whichever of them `op` is; others leave memory alone.
    void apply(std::size_t op, std::int64_t time_ns);

    MemoryProfile take();

private:
    struct Pending {
        BlockIndex block = no_block;
        AllocatorEvent event;
    };

    void run_out(std::size_t op, std::int64_t time_ns);
    AllocatorEvent event_of(AllocatorEvent::Kind kind, std::size_t op, std::int64_t time_ns) const;
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

    // For the log alone.
    std::vector<Pending> pending_;    // freed, but perhaps not completely
    std::vector<std::int64_t> base_;  // address of each segment, by its number
    std::vector<std::int64_t> size_;  // … and bytes
    std::vector<int> segment_stream_;
    std::int64_t next_base_ = 0;
};

}  // namespace fsdplan
