#include "simulate/device_memory.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>

#include "simulate/lanes.hpp"

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
    allocator_.set_used_by_others(setup.used_by_others);
    allocator_.log_driver_calls(true);
    if (events_ != nullptr) {
        *events_ = {};
        events_->options = setup.allocator;
    }
}

void DeviceMemory::apply(std::size_t op, std::int64_t time_ns) {
    const Op& what = schedule_.ops[op];
    const auto buffer = static_cast<std::size_t>(what.target);
    segments_changed_ = 0;
    if (schedule_.buffers[buffer].on_host) {
        if (what.kind != OpKind::use) {
            log_.apply(schedule_, op, schedule_.buffers[buffer].bytes,
                       allocator_.statistics().reserved_bytes);
        }
        return;
    }
    switch (what.kind) {
        case OpKind::allocate:
            allocate(op, time_ns);
            break;
        case OpKind::free:
            free(op, time_ns);
            break;
        case OpKind::use:
            if (what.stream != schedule_.buffers[buffer].stream && blocks_[buffer] != no_block) {
                users_[buffer] |= 1U << static_cast<unsigned>(what.stream);
                allocator_.record_stream(blocks_[buffer], static_cast<int>(what.stream));
            }
            break;
        case OpKind::relabel:
            log_.apply(schedule_, op, 0, allocator_.statistics().reserved_bytes);
            break;
        default:
            break;
    }
}

void DeviceMemory::allocate(std::size_t op, std::int64_t time_ns) {
    const auto index = static_cast<std::size_t>(schedule_.ops[op].target);
    const Buffer& buffer = schedule_.buffers[index];
    allocator_.clear_driver_calls();
    const Allocation got = allocator_.allocate({buffer.bytes}, static_cast<int>(buffer.stream));
    segments_changed_ = std::ranges::count_if(allocator_.driver_calls(), [](const DriverCall& call) {
        return call.kind != DriverCall::Kind::refused;
    });
    const AllocatorStatistics& statistics = allocator_.statistics();
    if (events_ != nullptr) {
        write_completed(time_ns);
        write_down(op, time_ns);
    }
    if (got.out_of_memory()) {
        log_.profile().out_of_memory = OutOfMemory{.op = static_cast<std::int32_t>(op),
                                                   .requested_bytes = buffer.bytes,
                                                   .allocated_bytes = statistics.allocated_bytes,
                                                   .reserved_bytes = statistics.reserved_bytes,
                                                   .free_bytes = allocator_.device_free_bytes()};
        if (events_ != nullptr) {
            events_->events.push_back({.kind = AllocatorEvent::Kind::out_of_memory,
                                       .op = static_cast<std::int32_t>(op),
                                       .buffer = static_cast<std::int32_t>(index),
                                       .stream = static_cast<int>(buffer.stream),
                                       .bytes = buffer.bytes,
                                       .device_free_bytes = allocator_.device_free_bytes(),
                                       .time_ns = time_ns});
        }
        return;
    }
    blocks_[index] = got.block;
    users_[index] = 0;
    log_.apply(schedule_, op, got.block_bytes, statistics.reserved_bytes);
    if (events_ != nullptr && got.block != no_block) {
        addresses_[index] = base_[static_cast<std::size_t>(got.segment)] + got.offset_bytes;
        events_->events.push_back({.kind = AllocatorEvent::Kind::alloc,
                                   .op = static_cast<std::int32_t>(op),
                                   .buffer = static_cast<std::int32_t>(index),
                                   .stream = static_cast<int>(buffer.stream),
                                   .address = addresses_[index],
                                   .bytes = buffer.bytes,
                                   .time_ns = time_ns});
    }
}

void DeviceMemory::free(std::size_t op, std::int64_t time_ns) {
    const auto index = static_cast<std::size_t>(schedule_.ops[op].target);
    const BlockIndex block = blocks_[index];
    if (block != no_block) {
        allocator_.free(block);
        blocks_[index] = no_block;
    }
    log_.apply(schedule_, op, 0, allocator_.statistics().reserved_bytes);
    if (events_ == nullptr || block == no_block) {
        return;
    }
    AllocatorEvent event{.kind = AllocatorEvent::Kind::free_requested,
                         .op = static_cast<std::int32_t>(op),
                         .buffer = static_cast<std::int32_t>(index),
                         .stream = static_cast<int>(schedule_.buffers[index].stream),
                         .address = addresses_[index],
                         .bytes = schedule_.buffers[index].bytes,
                         .time_ns = time_ns};
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
    return log_.take(schedule_);
}

namespace {

/// How far the streams have come for certain, from the program alone: positions are operations.
class Certain {
public:
    using Positions = std::array<std::int64_t, stream_count>;

    Certain(const Schedule& schedule, bool follows_waits)
        : at_record_(schedule.ops.size()), follows_waits_(follows_waits) {
        for (Positions& stream : streams_) {
            stream.fill(-1);
        }
    }

    void step(const Schedule& schedule, std::size_t i) {
        const Op& op = schedule.ops[i];
        if (!on_stream(op.kind)) {
            return;
        }
        Positions& stream = streams_[static_cast<std::size_t>(op.stream)];
        if (op.kind == OpKind::wait && op.target >= 0 && follows_waits_) {
            const Positions& event = at_record_[static_cast<std::size_t>(op.target)];
            std::ranges::transform(stream, event, stream.begin(),
                                   [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
        }
        stream[static_cast<std::size_t>(op.stream)] = static_cast<std::int64_t>(i);
        if (op.kind == OpKind::record) {
            if (follows_waits_) {
                at_record_[i] = stream;
            } else {
                at_record_[i].fill(-1);
                at_record_[i][static_cast<std::size_t>(op.stream)] = static_cast<std::int64_t>(i);
            }
        }
    }

    const Positions& at_record(std::int32_t op) const { return at_record_[static_cast<std::size_t>(op)]; }
    std::int64_t issued(std::size_t stream) const { return streams_[stream][stream]; }

private:
    std::array<Positions, stream_count> streams_{};
    std::vector<Positions> at_record_;
    bool follows_waits_;
};

bool touches_memory(OpKind kind) {
    return kind == OpKind::allocate || kind == OpKind::free || kind == OpKind::use || kind == OpKind::relabel;
}

}  // namespace

MemoryProfile device_memory(const Schedule& schedule, const Timeline& timeline, const MemorySetup& setup,
                            FreeTiming timing, AllocatorLog* log) {
    DeviceMemory memory(schedule, setup, log);
    CachingAllocator& allocator = memory.allocator();
    const bool by_clock = timing == FreeTiming::by_clock;
    std::optional<Certain> certain;
    if (timing == FreeTiming::when_known || timing == FreeTiming::when_waited_for) {
        certain.emplace(schedule, timing == FreeTiming::when_known);
    }
    if (timing == FreeTiming::at_once) {
        allocator.reached_everywhere(std::numeric_limits<std::int64_t>::max());
    }
    std::array<std::int64_t, stream_count> stream_end{};
    Certain::Positions reached{};
    reached.fill(-1);
    for (std::size_t i = 0; i < schedule.ops.size() && !memory.out_of_memory(); ++i) {
        const Op& op = schedule.ops[i];
        if (on_stream(op.kind)) {
            stream_end[static_cast<std::size_t>(op.stream)] = timeline.end_ns[i];
        }
        if (certain) {
            certain->step(schedule, i);
            if (op.kind == OpKind::block && op.target >= 0) {
                const Certain::Positions& event = certain->at_record(op.target);
                for (std::size_t s = 0; s < stream_count; ++s) {
                    reached[s] = std::max(reached[s], event[s]);
                    allocator.reached(static_cast<int>(s), reached[s]);
                }
            }
        }
        if (!touches_memory(op.kind)) {
            continue;
        }
        if (op.kind == OpKind::free) {
            const std::uint32_t users = memory.users(static_cast<std::size_t>(op.target));
            for (std::size_t s = 0; s < stream_count && (users >> s) != 0; ++s) {
                if (((users >> s) & 1U) != 0) {
                    allocator.issued(static_cast<int>(s), certain ? certain->issued(s) : stream_end[s]);
                }
            }
        } else if (op.kind == OpKind::allocate && by_clock) {
            allocator.reached_everywhere(timeline.issued_ns[i]);
        }
        memory.begin(i);
        memory.apply(i, timeline.issued_ns[i]);
    }
    return memory.take();
}

}  // namespace fsdplan
