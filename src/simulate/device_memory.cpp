#include "simulate/device_memory.hpp"

#include <algorithm>
#include <map>

namespace fsdplan {
namespace {

// Where the driver's addresses begin on Linux; nothing depends on it.
constexpr std::int64_t first_address = 0x7f0000000000;
constexpr std::int64_t page_bytes = std::int64_t{2} << 20U;

}  // namespace

DeviceMemory::DeviceMemory(const Schedule& schedule, const MemorySetup& setup, AllocatorLog* log)
    : schedule_(schedule),
      allocator_(setup.device, setup.allocator),
      log_(schedule),
      events_(log),
      blocks_(schedule.buffers.size(), no_block),
      addresses_(log == nullptr ? 0 : schedule.buffers.size()),
      users_(schedule.buffers.size()),
      next_base_(first_address) {
    allocator_.reserve(schedule.buffers.size());
    allocator_.set_used_by_others(setup.used_by_others);
    allocator_.log_driver_calls(true);
    if (events_ != nullptr) {
        *events_ = {};
        events_->options = setup.allocator;
    }
}

void DeviceMemory::apply(std::size_t op, std::int64_t time_ns) {
    switch (schedule_.ops[op].kind) {
        case OpKind::allocate:
            allocate(op, time_ns);
            break;
        case OpKind::free:
            free(op, time_ns);
            break;
        case OpKind::use:
            use(op);
            break;
        case OpKind::relabel:
            relabel(op);
            break;
        default:
            break;
    }
}

std::int64_t DeviceMemory::segments_changed() const {
    return std::ranges::count_if(allocator_.driver_calls(), [](const DriverCall& call) {
        return call.kind != DriverCall::Kind::refused;
    });
}

void DeviceMemory::use(std::size_t op) {
    const Op& what = schedule_.ops[op];
    const auto index = static_cast<std::size_t>(what.target);
    if (what.stream != schedule_.buffers[index].stream && blocks_[index] != no_block) {
        users_[index] |= 1U << static_cast<unsigned>(what.stream);
        allocator_.record_stream(blocks_[index], static_cast<int>(what.stream));
    }
}

void DeviceMemory::relabel(std::size_t op) {
    log_.relabel(op, static_cast<std::size_t>(schedule_.ops[op].target),
                 allocator_.statistics().reserved_bytes);
}

void DeviceMemory::allocate(std::size_t op, std::int64_t time_ns) {
    const auto index = static_cast<std::size_t>(schedule_.ops[op].target);
    const Buffer& buffer = schedule_.buffers[index];
    allocator_.clear_driver_calls();
    if (buffer.on_host) {
        log_.allocate(op, index, buffer.bytes, allocator_.statistics().reserved_bytes);
        return;
    }
    const Allocation got = allocator_.allocate({buffer.bytes}, static_cast<int>(buffer.stream));
    if (events_ != nullptr) {
        write_completed(time_ns);
        write_down(op, time_ns);
    }
    if (got.out_of_memory()) {
        run_out(op, time_ns);
        return;
    }
    blocks_[index] = got.block;
    users_[index] = 0;
    log_.allocate(op, index, got.block_bytes, allocator_.statistics().reserved_bytes);
    if (events_ != nullptr && got.block != no_block) {
        addresses_[index] = base_[static_cast<std::size_t>(got.segment)] + got.offset_bytes;
        AllocatorEvent event = event_of(AllocatorEvent::Kind::alloc, op, time_ns);
        event.address = addresses_[index];
        events_->events.push_back(event);
    }
}

void DeviceMemory::run_out(std::size_t op, std::int64_t time_ns) {
    AllocatorEvent event = event_of(AllocatorEvent::Kind::out_of_memory, op, time_ns);
    event.device_free_bytes = allocator_.device_free_bytes();
    const AllocatorStatistics& statistics = allocator_.statistics();
    log_.run_out({.op = event.op,
                  .requested_bytes = event.bytes,
                  .allocated_bytes = statistics.allocated_bytes,
                  .reserved_bytes = statistics.reserved_bytes,
                  .free_bytes = event.device_free_bytes});
    if (events_ != nullptr) {
        events_->events.push_back(event);
    }
}

/// What an event about the buffer of an operation always says.
AllocatorEvent DeviceMemory::event_of(AllocatorEvent::Kind kind, std::size_t op, std::int64_t time_ns) const {
    const std::int32_t buffer = schedule_.ops[op].target;
    const Buffer& asked = schedule_.buffers[static_cast<std::size_t>(buffer)];
    return {.kind = kind,
            .op = static_cast<std::int32_t>(op),
            .buffer = buffer,
            .stream = static_cast<int>(asked.stream),
            .bytes = asked.bytes,
            .time_ns = time_ns};
}

void DeviceMemory::free(std::size_t op, std::int64_t time_ns) {
    const auto index = static_cast<std::size_t>(schedule_.ops[op].target);
    const BlockIndex block = blocks_[index];
    if (block != no_block) {
        allocator_.free(block);
        blocks_[index] = no_block;
    }
    log_.free(op, index, allocator_.statistics().reserved_bytes);
    if (events_ == nullptr || block == no_block) {
        return;
    }
    AllocatorEvent event = event_of(AllocatorEvent::Kind::free_requested, op, time_ns);
    event.address = addresses_[index];
    events_->events.push_back(event);
    event.kind = AllocatorEvent::Kind::free_completed;
    if (users_[index] == 0) {
        events_->events.push_back(event);
    } else {
        pending_.push_back({.block = block, .event = event});
    }
}

/// Frees that the allocator has seen complete in its last call.
void DeviceMemory::write_completed(std::int64_t time_ns) {
    if (pending_.empty()) {
        return;
    }
    std::vector<BlockIndex> waiting;
    allocator_.for_each_live([&](const CachingAllocator::BlockView& block) {
        if (block.state == CachingAllocator::State::waiting) {
            waiting.push_back(block.block);
        }
    });
    std::ranges::sort(waiting);
    const auto completed = [&](const Pending& free) {
        return !std::ranges::binary_search(waiting, free.block);
    };
    for (Pending& free : pending_) {
        if (completed(free)) {
            free.event.time_ns = time_ns;
            events_->events.push_back(free.event);
        }
    }
    std::erase_if(pending_, completed);
}

/// Calls of the driver since the last time.
void DeviceMemory::write_down(std::size_t op, std::int64_t time_ns) {
    using Kind = DriverCall::Kind;
    const int asking =
        static_cast<int>(schedule_.buffers[static_cast<std::size_t>(schedule_.ops[op].target)].stream);
    for (const DriverCall& call : allocator_.driver_calls()) {
        if (call.kind == Kind::refused) {
            continue;
        }
        const auto segment = static_cast<std::size_t>(call.segment);
        if (call.kind == Kind::malloc || call.kind == Kind::reserve) {
            base_.resize(std::max(base_.size(), segment + 1));
            size_.resize(base_.size());
            segment_stream_.resize(base_.size());
            base_[segment] = next_base_;
            size_[segment] = call.bytes;
            segment_stream_[segment] = asking;
            next_base_ += round_up(call.bytes, page_bytes);
        }
        if (call.kind == Kind::reserve || call.kind == Kind::unreserve) {
            continue;
        }
        AllocatorEvent event{.op = static_cast<std::int32_t>(op),
                             .stream = segment_stream_[segment],
                             .address = base_[segment] + call.offset_bytes,
                             .bytes = call.bytes,
                             .time_ns = time_ns};
        switch (call.kind) {
            case Kind::malloc:
                event.kind = AllocatorEvent::Kind::segment_alloc;
                break;
            case Kind::free:
                event.kind = AllocatorEvent::Kind::segment_free;
                event.bytes = size_[segment];
                break;
            case Kind::map:
                event.kind = AllocatorEvent::Kind::segment_map;
                break;
            default:
                event.kind = AllocatorEvent::Kind::segment_unmap;
                break;
        }
        events_->events.push_back(event);
    }
}

void DeviceMemory::write_segments() {
    std::map<BlockIndex, std::int32_t> owners;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        if (blocks_[i] != no_block) {
            owners[blocks_[i]] = static_cast<std::int32_t>(i);
        }
    }
    for (const Pending& free : pending_) {
        owners[free.block] = free.event.buffer;
    }
    for (const CachingAllocator::SegmentView& segment : allocator_.layout()) {
        const std::int64_t address = base_[static_cast<std::size_t>(segment.segment)] + segment.offset_bytes;
        AllocatorSegment out{
            .address = address, .bytes = segment.bytes, .stream = segment.stream, .small = segment.small};
        for (const CachingAllocator::BlockView& block : segment.blocks) {
            const bool live = block.state == CachingAllocator::State::allocated ||
                              block.state == CachingAllocator::State::waiting;
            out.blocks.push_back({.address = address + (block.address - segment.address),
                                  .bytes = block.bytes,
                                  .requested_bytes = live ? block.requested_bytes : 0,
                                  .buffer = live ? owners.at(block.block) : -1,
                                  .waiting = block.state == CachingAllocator::State::waiting});
        }
        events_->segments.push_back(std::move(out));
    }
    // Addresses rise with the age of a segment, but let nothing depend on it.
    std::ranges::sort(events_->segments, {}, &AllocatorSegment::address);
}

MemoryProfile DeviceMemory::take() {
    const AllocatorStatistics& statistics = allocator_.statistics();
    log_.profile().reserved_peak_bytes = statistics.reserved_peak_bytes;
    log_.profile().active_peak_bytes = statistics.active_peak_bytes;
    log_.profile().alloc_retries = statistics.alloc_retries;
    if (events_ != nullptr) {
        write_segments();
    }
    return log_.take();
}

}  // namespace fsdplan
