#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "fsdplan/base.hpp"

// PyTorch's CUDA caching allocator on a device that does not exist: the same addresses, statistics and driver
// calls.
namespace fsdplan {

/// What PYTORCH_ALLOC_CONF says, as far as it changes where memory lies.
struct AllocatorOptions {
    static constexpr std::int64_t unlimited = std::int64_t{1} << 60U;

    bool expandable_segments = false;
    /// Fail at once when the device has less free memory than a new segment needs.
    bool throw_on_cudamalloc_oom = false;
    std::int64_t large_segment_bytes = std::int64_t{20} << 20U;
    std::int64_t max_split_bytes = unlimited;
    std::int64_t max_non_split_rounding_bytes = std::int64_t{20} << 20U;
    /// In (0, 1); 0 is off.
    double garbage_collection_threshold = 0.0;
    /// Of the device; 1 is no limit.
    double per_process_memory_fraction = 1.0;
    /// Steps per doubling, by class of size: floor(log2(bytes)) - 20, at least 0 and at most 15. 0 and 1:
    /// multiples of 512.
    std::array<std::int64_t, 16> roundup_power2_divisions{};
};

/// Reads a value of PYTORCH_ALLOC_CONF; "" is all defaults. Keys that do not change where device memory lies
/// (pinned memory, locks) are checked and dropped. Throws Error(input) at `where` for what PyTorch refuses,
/// for numbers with something behind them, and for another backend than the native one.
AllocatorOptions parse_alloc_conf(std::string_view text, std::string_view where = "PYTORCH_ALLOC_CONF");

/// A block of a CachingAllocator. Valid from its allocation until it is freed; later allocations take over
/// indices.
enum class BlockIndex : std::int32_t {};
constexpr BlockIndex no_block{-1};

struct Allocation {
    enum class Outcome : std::uint8_t { placed, empty, out_of_memory };

    Outcome outcome = Outcome::empty;
    BlockIndex block = no_block;
    std::int64_t segment = -1;  ///< segments and reservations are numbered in the order of their creation
    std::int64_t offset_bytes = 0;
    std::int64_t block_bytes = 0;

    bool out_of_memory() const { return outcome == Outcome::out_of_memory; }
};

/// One call of the driver, in the order they are made.
struct DriverCall {
    enum class Kind : std::uint8_t { malloc, free, refused, reserve, unreserve, map, unmap };

    Kind kind = Kind::malloc;
    std::int64_t segment = -1;      ///< not of `refused`
    std::int64_t offset_bytes = 0;  ///< of `map` and `unmap`
    std::int64_t bytes = 0;         ///< not of `free` and `unreserve`

    friend auto operator<=>(const DriverCall&, const DriverCall&) = default;
};

/// As torch.cuda.memory_stats() counts them.
struct AllocatorStatistics {
    std::int64_t allocated_bytes = 0;  ///< blocks that are in use
    std::int64_t active_bytes = 0;     ///< and those that are freed but wait for events
    std::int64_t requested_bytes = 0;  ///< what was asked for, of the active blocks
    std::int64_t reserved_bytes = 0;   ///< segments, or mapped pages
    std::int64_t segments = 0;         ///< stays 0 with expandable segments
    std::int64_t alloc_retries = 0;
    std::int64_t ooms = 0;
    std::int64_t allocated_peak_bytes = 0;
    std::int64_t active_peak_bytes = 0;
    std::int64_t requested_peak_bytes = 0;
    std::int64_t reserved_peak_bytes = 0;
    /// Times that the host waited for the whole device: a segment given back, or a wait for outstanding
    /// events.
    std::int64_t device_waits = 0;

    friend bool operator==(const AllocatorStatistics&, const AllocatorStatistics&) = default;
};

/// One device's allocator. Streams are numbers from 0 to `most_streams` - 1. Private pools (CUDA graphs) are
/// not modelled. After the first step of a training loop no operation touches the heap.
///
/// Whether a freed block whose memory other streams still use may be reused depends on how far the device is.
/// The caller keeps two numbers of each stream, in a unit of its own (say nanoseconds, or numbers of
/// operations): where the work handed to it so far will end (issued), and how far it has come (reached). An
/// event is recorded at the former and complete once the latter is as large. A clock says issued(stream, end
/// of the last operation) and reached_everywhere(host time); the two extremes are reached_everywhere(the
/// largest number) once, where every event is complete when looked at, and never calling it, where none is
/// before the host waits for the device.
class CachingAllocator {
public:
    static constexpr int most_streams = 64;
    static constexpr Bytes most_memory{std::int64_t{1} << 42U};

    /// `memory`: all of the device's. Throws Error(input) when it is negative or above `most_memory`.
    explicit CachingAllocator(Bytes memory, const AllocatorOptions& options = {});

    /// As constructed, but keeps its storage, the driver log's switch and what others use.
    void reset();
    /// As constructed with these; keeps its storage.
    void reset(Bytes memory, const AllocatorOptions& options);

    /// Makes room for so many blocks, so that their table need not move while it grows.
    void reserve(std::size_t blocks) { blocks_.reserve(blocks); }

    /// Device memory that does not belong to this allocator (contexts, NCCL); the driver cannot hand it out.
    void set_used_by_others(Bytes bytes) { used_by_others_ = bytes.count; }
    /// torch.cuda.set_per_process_memory_fraction. Throws Error(input) outside of [0, 1].
    void set_memory_fraction(double fraction);

    /// Takes `size` bytes as PyTorch would for the current stream `stream`.
    Allocation allocate(Bytes size, int stream);
    /// `block` is one that allocate() has placed and that was not freed yet.
    void free(BlockIndex block);
    /// Tensor.record_stream: `stream` uses the block too.
    void record_stream(BlockIndex block, int stream);
    void empty_cache();

    // How far the device is (see above). Numbers of one stream never fall; before the first call `issued` is
    // 0 and nothing is reached. The allocator looks at them in its next allocate().
    void issued(int stream, std::int64_t position);
    void reached(int stream, std::int64_t position);
    void reached_everywhere(std::int64_t position) { reached_everywhere_ = position; }
    /// All events recorded on the stream so far are complete.
    void complete(int stream);
    /// All events recorded so far are complete.
    void synchronize();

    const AllocatorStatistics& statistics() const { return statistics_; }
    /// Sets the peaks to the present values.
    void reset_peaks();
    /// Free blocks of segments that are split; without expandable segments.
    std::int64_t inactive_split_bytes() const;
    std::int64_t device_free_bytes() const { return memory_ - used_by_others_ - device_used_; }
    const AllocatorOptions& options() const { return options_; }

    /// Whether calls of the driver are written down; off at first.
    void log_driver_calls(bool on) { logging_ = on; }
    std::span<const DriverCall> driver_calls() const { return driver_calls_; }
    void clear_driver_calls() { driver_calls_.clear(); }

    enum class State : std::uint8_t { free, allocated, waiting, unmapped, unused };
    struct BlockView {
        BlockIndex block = no_block;
        std::int64_t address = 0;  ///< a segment lies above all older ones
        std::int64_t bytes = 0;
        std::int64_t requested_bytes = 0;
        int stream = 0;
        State state = State::free;
    };
    /// A segment, or one run of mapped memory in a reservation.
    struct SegmentView {
        std::int64_t segment = 0;
        std::int64_t address = 0;
        std::int64_t offset_bytes = 0;  ///< of the run in its reservation
        std::int64_t bytes = 0;
        int stream = 0;
        bool small = false;
        std::vector<BlockView> blocks;  ///< in the order of addresses
    };
    /// Everything that is reserved, in the order of addresses.
    std::vector<SegmentView> layout() const;

    /// Calls visit(BlockView) for every block that is allocated or waits for events; in no particular order,
    /// but always the same.
    template <class Visitor>
    void for_each_live(Visitor&& visit) const {
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            if (blocks_[i].state == State::allocated || blocks_[i].state == State::waiting) {
                visit(view(static_cast<std::int32_t>(i)));
            }
        }
    }

private:
    // One cache line. Neighbours in the segment are linked by index; records of blocks that are gone are
    // chained by `next` and used again. The record of a segment's lowest block stays the same for the life of
    // the segment.
    struct Block {
        std::int64_t address = 0;
        std::int64_t bytes = 0;
        std::uint32_t freed_at = 0;  // searches when it became free
        std::int32_t previous = -1;
        std::int32_t next = -1;
        std::int32_t segment = -1;  // slot
        // A free block's place in the heap of the free blocks of its size (see Pool).
        std::int32_t child = -1;    // first
        std::int32_t sibling = -1;  // next
        std::int32_t back = -1;     // previous sibling, or the parent of a first child; -1: root
        std::uint8_t events = 0;    // outstanding
        std::uint8_t pool = 0;
        State state = State::unused;
        std::int64_t requested_bytes = 0;
        std::uint64_t recorded = 0;  // other streams that use it, a bit each
    };
    struct Segment {
        std::int64_t number = 0;
        std::int64_t address = 0;
        std::int64_t bytes = 0;
        std::int32_t first = -1;  // block; -1: slot is not in use
    };
    // The small or large blocks of one stream: two for each stream, the small one first.
    struct Pool {
        // One entry for each size of free blocks, sorted: size / 512 in the high bits, below it the index of
        // the block with the lowest address. The others hang below that one in a pairing heap: training frees
        // hundreds of blocks of a few sizes.
        std::vector<std::uint64_t> free;
        // Where sizes were last found among them: training asks for the same ones again and again.
        std::array<std::uint32_t, 16> hints{};
        std::vector<std::int32_t> unmapped;  // ranges of reservations in the order of addresses
    };
    struct Event {
        std::int32_t block = -1;
        std::int64_t position = 0;
    };
    struct Stream {
        std::vector<Event> events;
        std::size_t head = 0;  // the events before it were seen complete
        std::size_t done = 0;  // the events before it are complete, seen or not
        std::int64_t issued = 0;
        std::int64_t reached = std::numeric_limits<std::int64_t>::min();
    };

    std::int64_t rounded(std::int64_t size) const;
    std::int64_t segment_bytes(std::int64_t rounded_size) const;
    std::int64_t page_bytes(std::int32_t pool) const;
    bool splits(std::int32_t pool, std::int64_t size, std::int64_t rest) const;
    void need_stream(int stream) {
        if (static_cast<std::size_t>(stream) >= streams_.size()) {
            add_streams(stream);
        }
    }
    void add_streams(int last);
    BlockView view(std::int32_t block) const;

    void insert_free(std::int32_t block);
    void erase_free(std::int32_t block);
    std::int32_t meld(std::int32_t a, std::int32_t b);
    std::int32_t meld_children(std::int32_t block);
    template <class Visitor>
    void for_each_of_size(std::int32_t root, const Visitor& visit) const;
    template <class Visitor>
    void for_each_free(const Visitor& visit) const;
    void erase_first(Pool& pool, std::size_t place);
    static std::size_t place_for(Pool& pool, std::int64_t size);
    std::int32_t best_fit(const Pool& pool, std::int64_t size, std::size_t place) const;
    std::int32_t least_extended(const Pool& pool, std::size_t place) const;
    std::int64_t extended_bytes(std::int32_t block) const;

    std::int32_t new_block();
    std::int32_t split(std::int32_t block, std::int64_t bytes);
    std::int32_t absorb_next(std::int32_t block);
    void drop_block(std::int32_t block);
    std::int32_t merge(std::int32_t block);
    std::int32_t new_slot();
    std::int32_t new_segment(std::int32_t pool, std::int64_t bytes, State state);

    void poll();
    void wait_for_events();
    void release(std::int32_t block);

    struct Request {
        std::int32_t pool = 0;
        std::int64_t bytes = 0;  // rounded
    };
    std::int32_t grow(const Request& request);
    std::int32_t ask(const Request& request);
    std::int32_t ask_for_pages(const Request& request);
    std::int32_t ask_for_segment(const Request& request);
    std::int32_t expandable_range(const Request& request);
    std::int32_t map(std::int32_t block, std::int64_t bytes);
    void unmap(std::int32_t block);
    void free_segment(std::int32_t block);
    void free_segments();
    bool release_oversize(const Request& request);
    void collect_garbage();
    void log(const DriverCall& call) {
        if (logging_) {
            driver_calls_.push_back(call);
        }
    }

    AllocatorOptions options_;
    std::int64_t memory_ = 0;
    std::int64_t used_by_others_ = 0;
    std::int64_t device_used_ = 0;  // in whole granules of the driver
    std::int64_t limit_ = AllocatorOptions::unlimited;
    std::int64_t next_address_ = 0;
    std::int64_t next_number_ = 0;
    std::uint32_t searches_ = 0;         // of the large pools
    std::uint64_t streams_waiting_ = 0;  // that have events which were not seen complete, a bit each
    std::int64_t reached_everywhere_ = std::numeric_limits<std::int64_t>::min();
    std::int32_t unused_blocks_ = -1;
    AllocatorStatistics statistics_;
    std::vector<Block> blocks_;
    std::vector<Segment> segments_;
    std::vector<std::int32_t> unused_segments_;
    std::vector<Pool> pools_;
    std::vector<Stream> streams_;
    std::vector<std::int32_t> scratch_;
    std::vector<DriverCall> driver_calls_;
    bool logging_ = false;
};

}  // namespace fsdplan
