#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <span>
#include <vector>

#include "simulate/device_memory.hpp"
#include "simulate/lanes.hpp"

// The caching allocator beside a program whose times are known: how far the device is when the host frees and
// allocates.
namespace fsdplan {
namespace {

/// How far the streams have come by a timeline: positions are nanoseconds.
class ByTimeline {
public:
    /// `at_once`: every stream has done what it was given.
    ByTimeline(const Schedule& schedule, const Timeline& timeline, CachingAllocator& allocator, bool at_once)
        : ops_(schedule.ops), timeline_(timeline), allocator_(allocator), at_once_(at_once) {
        if (at_once) {
            allocator.reached_everywhere(std::numeric_limits<std::int64_t>::max());
        }
    }

    /// An operation that leaves memory alone.
    void step(std::size_t i) {
        if (on_stream(ops_[i].kind)) {
            end_ns_[static_cast<std::size_t>(ops_[i].stream)] = timeline_.end_ns[i];
        }
    }
    void before_allocation(std::size_t i) {
        if (!at_once_) {
            allocator_.reached_everywhere(timeline_.issued_ns[i]);
        }
    }
    /// Where the work of a stream so far ends.
    std::int64_t issued(std::size_t stream) const { return end_ns_[stream]; }

private:
    std::span<const Op> ops_;
    const Timeline& timeline_;
    CachingAllocator& allocator_;
    std::array<std::int64_t, stream_count> end_ns_{};
    bool at_once_;
};

/// How far they have come for certain, from the program alone: positions are operations.
class Certain {
public:
    Certain(const Schedule& schedule, CachingAllocator& allocator, bool follows_waits)
        : ops_(schedule.ops),
          allocator_(allocator),
          at_record_(schedule.ops.size()),
          follows_waits_(follows_waits) {
        reached_.fill(-1);
        for (Positions& stream : streams_) {
            stream.fill(-1);
        }
    }

    void step(std::size_t i) {
        const Op& op = ops_[i];
        if (op.kind == OpKind::block && op.target >= 0) {
            reach(at_record_[static_cast<std::size_t>(op.target)]);
        }
        if (!on_stream(op.kind)) {
            return;
        }
        Positions& stream = streams_[static_cast<std::size_t>(op.stream)];
        if (op.kind == OpKind::wait && op.target >= 0 && follows_waits_) {
            raise(stream, at_record_[static_cast<std::size_t>(op.target)]);
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
    void before_allocation(std::size_t /*i*/) {}
    std::int64_t issued(std::size_t stream) const { return streams_[stream][stream]; }

private:
    using Positions = std::array<std::int64_t, stream_count>;

    static void raise(Positions& to, const Positions& event) {
        std::ranges::transform(to, event, to.begin(),
                               [](std::int64_t a, std::int64_t b) { return std::max(a, b); });
    }

    /// The host waited for an event.
    void reach(const Positions& event) {
        raise(reached_, event);
        for (std::size_t s = 0; s < stream_count; ++s) {
            allocator_.reached(static_cast<int>(s), reached_[s]);
        }
    }

    std::span<const Op> ops_;
    CachingAllocator& allocator_;
    std::array<Positions, stream_count> streams_{};
    std::vector<Positions> at_record_;
    Positions reached_{};  // by the host
    bool follows_waits_;
};

template <class Progress>
void play_memory(const Schedule& schedule, const Timeline& timeline, DeviceMemory& memory,
                 Progress progress) {
    for (std::size_t i = 0; i < schedule.ops.size() && !memory.out_of_memory(); ++i) {
        switch (schedule.ops[i].kind) {
            case OpKind::allocate:
                progress.before_allocation(i);
                memory.allocate(i, timeline.issued_ns[i]);
                break;
            case OpKind::free:
                for (std::uint32_t left = memory.users(i); left != 0; left &= left - 1) {
                    const int stream = std::countr_zero(left);
                    memory.allocator().issued(stream, progress.issued(static_cast<std::size_t>(stream)));
                }
                memory.free(i, timeline.issued_ns[i]);
                break;
            case OpKind::use:
                memory.use(i);
                break;
            case OpKind::relabel:
                memory.relabel(i);
                break;
            default:
                progress.step(i);
                break;
        }
    }
}

}  // namespace

MemoryProfile device_memory(const Schedule& schedule, const Timeline& timeline, const MemorySetup& setup,
                            FreeTiming timing, AllocatorLog* log) {
    DeviceMemory memory(schedule, setup, log);
    CachingAllocator& allocator = memory.allocator();
    switch (timing) {
        case FreeTiming::by_clock:
        case FreeTiming::at_once:
            play_memory(schedule, timeline, memory,
                        ByTimeline(schedule, timeline, allocator, timing == FreeTiming::at_once));
            break;
        case FreeTiming::when_known:
        case FreeTiming::when_waited_for:
            play_memory(schedule, timeline, memory,
                        Certain(schedule, allocator, timing == FreeTiming::when_known));
            break;
    }
    return memory.take();
}

}  // namespace fsdplan
