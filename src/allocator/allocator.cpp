#include "allocator/internals.hpp"

// The rules are those that the recordings in tests/golden/allocator show; names follow PyTorch where it has
// one.
namespace fsdplan {

using namespace allocator;

CachingAllocator::CachingAllocator(Bytes memory, const AllocatorOptions& options) {
    reset(memory, options);
}

void CachingAllocator::reset(Bytes memory, const AllocatorOptions& options) {
    if (memory.count < 0 || memory > most_memory) {
        throw Error(ErrorKind::input, "device memory",
                    "expected 0 to " + std::to_string(most_memory.count) + " bytes, found " +
                        std::to_string(memory.count));
    }
    options_ = options;
    memory_ = memory.count;
    reset();
}

void CachingAllocator::reset() {
    set_memory_fraction(options_.per_process_memory_fraction);
    device_used_ = 0;
    next_address_ = 0;
    next_number_ = 0;
    searches_ = 0;
    streams_waiting_ = 0;
    reached_everywhere_ = std::numeric_limits<std::int64_t>::min();
    unused_blocks_ = -1;
    statistics_ = {};
    blocks_.clear();
    segments_.clear();
    unused_segments_.clear();
    for (Pool& pool : pools_) {
        pool.free.clear();
        pool.unmapped.clear();
    }
    for (Stream& stream : streams_) {
        stream.events.clear();
        stream.head = 0;
        stream.done = 0;
        stream.issued = 0;
        stream.reached = std::numeric_limits<std::int64_t>::min();
    }
    driver_calls_.clear();
}

void CachingAllocator::set_memory_fraction(double fraction) {
    if (!(fraction >= 0.0 && fraction <= 1.0)) {
        throw Error(ErrorKind::input, "memory fraction",
                    "expected a number from 0 to 1, found " + std::to_string(fraction));
    }
    limit_ = fraction < 1.0 ? static_cast<std::int64_t>(fraction * static_cast<double>(memory_))
                            : AllocatorOptions::unlimited;
}

inline std::int64_t CachingAllocator::rounded(std::int64_t size) const {
    if (size < min_block) {
        return min_block;
    }
    const auto log2 = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size))) - 1;
    const auto size_class = static_cast<std::size_t>(std::clamp(log2 - 20, 0, 15));
    const std::int64_t divisions = options_.roundup_power2_divisions[size_class];
    if (divisions > 1 && (size - 1) / min_block >= divisions) {
        const std::int64_t floor = std::int64_t{1} << static_cast<unsigned>(log2);
        return round_up(size, floor / divisions);
    }
    return round_up(size, min_block);
}

bool CachingAllocator::splits(std::int32_t pool, std::int64_t size, std::int64_t rest) const {
    if (is_small(pool) || options_.expandable_segments) {
        return rest >= min_block;
    }
    return size < options_.max_split_bytes && rest > small_limit;
}

void CachingAllocator::add_streams(int last) {
    FSDPLAN_ASSERT(last >= 0 && last < most_streams, "streams are numbered from 0");
    streams_.resize(static_cast<std::size_t>(last) + 1);
    pools_.resize(2 * streams_.size());
}

// The free blocks of a pool: a sorted array with one entry a size, and below each entry a pairing heap over
// addresses for the blocks of that size. The array is short, so that moving its numbers is cheaper than
// walking a tree.

/// Two heaps of blocks of one size as one.
std::int32_t CachingAllocator::meld(std::int32_t a, std::int32_t b) {
    if (blocks_[at(b)].address < blocks_[at(a)].address) {
        std::swap(a, b);
    }
    Block& parent = blocks_[at(a)];
    Block& child = blocks_[at(b)];
    child.back = a;
    child.sibling = parent.child;
    if (parent.child >= 0) {
        blocks_[at(parent.child)].back = b;
    }
    parent.child = b;
    return a;
}

/// The heap of everything below `block`, which becomes single; -1 when there is nothing.
std::int32_t CachingAllocator::meld_children(std::int32_t block) {
    std::int32_t rest = std::exchange(blocks_[at(block)].child, -1);
    // In pairs from the left, then all from the right: amortised logarithmic. The pairs are chained by
    // `back`.
    std::int32_t pairs = -1;
    while (rest >= 0) {
        const std::int32_t a = rest;
        const std::int32_t b = std::exchange(blocks_[at(a)].sibling, -1);
        std::int32_t pair = a;
        rest = -1;
        if (b >= 0) {
            rest = std::exchange(blocks_[at(b)].sibling, -1);
            pair = meld(a, b);
        }
        blocks_[at(pair)].back = pairs;
        pairs = pair;
    }
    std::int32_t root = -1;
    while (pairs >= 0) {
        const std::int32_t pair = pairs;
        pairs = std::exchange(blocks_[at(pair)].back, -1);
        root = root < 0 ? pair : meld(root, pair);
    }
    return root;
}

/// Of the smallest free blocks of at least this size.
inline std::size_t CachingAllocator::place_for(Pool& pool, std::int64_t size) {
    const std::uint64_t key = key_of(size, 0);
    const Keys& keys = pool.free;
    std::uint32_t& hint =
        pool.hints[(static_cast<std::uint64_t>(size / min_block) * 0x9e3779b97f4a7c15U) >> 60U];
    const std::size_t place = hint;
    if (place <= keys.size() && (place == 0 || keys[place - 1] < key) &&
        (place == keys.size() || keys[place] >= key)) {
        return place;
    }
    hint = static_cast<std::uint32_t>(count_before(keys.data(), keys.size(), key));
    return hint;
}

void CachingAllocator::insert_free(std::int32_t block) {
    Block& record = blocks_[at(block)];
    Pool& pool = pools_[record.pool];
    Keys& keys = pool.free;
    record.state = State::free;
    record.freed_at = searches_;
    record.child = record.sibling = record.back = -1;
    const std::uint64_t least = key_of(record.bytes, 0);
    const std::size_t place = place_for(pool, record.bytes);
    if (place < keys.size() && keys[place] <= (least | block_mask)) {
        keys[place] = least | static_cast<std::uint64_t>(meld(block_of(keys[place]), block));
    } else {
        keys.insert(keys.begin() + static_cast<std::ptrdiff_t>(place), key_of(record.bytes, block));
    }
}

void CachingAllocator::erase_free(std::int32_t block) {
    Block& record = blocks_[at(block)];
    if (record.back >= 0) {
        const std::int32_t rest = meld_children(block);
        // What was below it takes its place among its siblings.
        const std::int32_t follower = rest >= 0 ? rest : record.sibling;
        if (rest >= 0) {
            blocks_[at(rest)].sibling = record.sibling;
            if (record.sibling >= 0) {
                blocks_[at(record.sibling)].back = rest;
            }
        }
        if (follower >= 0) {
            blocks_[at(follower)].back = record.back;
        }
        Block& before = blocks_[at(record.back)];
        (before.child == block ? before.child : before.sibling) = follower;
        return;
    }
    Pool& pool = pools_[record.pool];
    erase_first(pool, place_for(pool, record.bytes));
}

/// erase_free() of the lowest block of the size at `place`.
inline void CachingAllocator::erase_first(Pool& pool, std::size_t place) {
    const std::int32_t block = block_of(pool.free[place]);
    const std::int32_t rest = meld_children(block);
    if (rest >= 0) {
        pool.free[place] = key_of(blocks_[at(block)].bytes, rest);
    } else {
        pool.free.erase(pool.free.begin() + static_cast<std::ptrdiff_t>(place));
    }
}

std::int64_t CachingAllocator::extended_bytes(std::int32_t block) const {
    const std::int32_t next = blocks_[at(block)].next;
    const bool grows = next >= 0 && blocks_[at(next)].state == State::unmapped;
    return blocks_[at(block)].bytes + (grows ? blocks_[at(next)].bytes : 0);
}

// A block that can still grow counts as large as it can become, so that the tail of a reservation is used
// last. The walk in the order of sizes and addresses stops at the first block that would not be better, even
// if one behind it were: so it goes on only while it stands on a block that can grow.
std::int32_t CachingAllocator::least_extended(const Pool& pool, std::size_t place) const {
    std::int32_t block = block_of(pool.free[place]);
    while (extended_bytes(block) > blocks_[at(block)].bytes) {
        std::int32_t next = -1;
        for_each_of_size(block_of(pool.free[place]), [&](std::int32_t b) {
            if (blocks_[at(b)].address > blocks_[at(block)].address &&
                (next < 0 || blocks_[at(b)].address < blocks_[at(next)].address)) {
                next = b;
            }
        });
        if (next < 0 && ++place < pool.free.size()) {
            next = block_of(pool.free[place]);
        }
        if (next < 0 || extended_bytes(next) >= extended_bytes(block)) {
            break;
        }
        block = next;
    }
    return block;
}

/// The block at `place`, or the one that takes its turn while reservations can grow; -1: none will do.
std::int32_t CachingAllocator::best_fit(const Pool& pool, std::int64_t size, std::size_t place) const {
    if (place == pool.free.size()) {
        return -1;
    }
    const std::int32_t block =
        options_.expandable_segments ? least_extended(pool, place) : block_of(pool.free[place]);
    // Only this one candidate is looked at: a block that may not be split is kept for large requests, and a
    // large request does not take one that is much too large.
    const std::int64_t bytes = blocks_[at(block)].bytes;
    const bool oversize = size < options_.max_split_bytes
                              ? bytes >= options_.max_split_bytes
                              : bytes >= size + options_.max_non_split_rounding_bytes;
    return oversize ? -1 : block;
}

// Block records.

/// Cuts `block` down to `bytes` and returns a new block for what lies behind, of the same state.
std::int32_t CachingAllocator::split(std::int32_t block, std::int64_t bytes) {
    const std::int32_t rest = new_block();
    Block& low = blocks_[at(block)];
    Block& high = blocks_[at(rest)];
    high = {.address = low.address + bytes,
            .bytes = low.bytes - bytes,
            .freed_at = searches_,
            .previous = block,
            .next = low.next,
            .segment = low.segment,
            .pool = low.pool,
            .state = low.state};
    low.bytes = bytes;
    low.next = rest;
    if (high.next >= 0) {
        blocks_[at(high.next)].previous = rest;
    }
    return rest;
}

/// Joins `block` with the one behind it, whose record becomes unused.
std::int32_t CachingAllocator::absorb_next(std::int32_t block) {
    Block& low = blocks_[at(block)];
    const std::int32_t gone = low.next;
    low.bytes += blocks_[at(gone)].bytes;
    low.next = blocks_[at(gone)].next;
    if (low.next >= 0) {
        blocks_[at(low.next)].previous = block;
    }
    drop_block(gone);
    return block;
}

void CachingAllocator::drop_block(std::int32_t block) {
    blocks_[at(block)].state = State::unused;
    blocks_[at(block)].next = unused_blocks_;
    unused_blocks_ = block;
}

/// Joins a block that has just become free (or just been mapped) with its free neighbours and files the
/// result.
std::int32_t CachingAllocator::merge(std::int32_t block) {
    const auto is_free = [&](std::int32_t b) { return b >= 0 && blocks_[at(b)].state == State::free; };
    const std::int32_t previous = blocks_[at(block)].previous;
    const std::int32_t next = blocks_[at(block)].next;
    if (is_free(next)) {
        erase_free(next);
        absorb_next(block);
    }
    if (is_free(previous)) {
        erase_free(previous);
        block = absorb_next(previous);
    }
    insert_free(block);
    return block;
}

// Requests.

Allocation CachingAllocator::allocate(Bytes size, int stream) {
    FSDPLAN_ASSERT(size.count >= 0 && size.count <= largest_total, "a tensor's size");
    if (size.count == 0) {
        return {};
    }
    need_stream(stream);
    if (streams_waiting_ != 0) {
        poll();
    }
    Request request{.bytes = rounded(size.count)};
    request.pool = 2 * stream + (request.bytes <= small_limit ? 0 : 1);
    if (!is_small(request.pool) && options_.garbage_collection_threshold > 0.0 &&
        limit_ != AllocatorOptions::unlimited) {
        ++searches_;
    }
    Pool& pool = pools_[at(request.pool)];
    const std::size_t place = place_for(pool, request.bytes);
    std::int32_t block = best_fit(pool, request.bytes, place);
    const bool found = block >= 0;
    if (!found) {
        block = grow(request);
        if (block < 0) {
            return {.outcome = Allocation::Outcome::out_of_memory};
        }
    }
    if (options_.expandable_segments) {
        erase_free(block);
    } else if (found) {  // a new segment is not among the free blocks yet
        erase_first(pool, place);
    }
    if (splits(request.pool, request.bytes, blocks_[at(block)].bytes - request.bytes)) {
        insert_free(split(block, request.bytes));
    }
    Block& taken = blocks_[at(block)];
    taken.state = State::allocated;
    taken.requested_bytes = size.count;
    taken.recorded = 0;
    AllocatorStatistics& s = statistics_;
    s.allocated_bytes += taken.bytes;
    s.active_bytes += taken.bytes;
    s.requested_bytes += size.count;
    s.allocated_peak_bytes = std::max(s.allocated_peak_bytes, s.allocated_bytes);
    s.active_peak_bytes = std::max(s.active_peak_bytes, s.active_bytes);
    s.requested_peak_bytes = std::max(s.requested_peak_bytes, s.requested_bytes);
    const Segment& segment = segments_[at(taken.segment)];
    return {.outcome = Allocation::Outcome::placed,
            .block = BlockIndex{block},
            .segment = segment.number,
            .offset_bytes = taken.address - segment.address,
            .block_bytes = taken.bytes};
}

void CachingAllocator::free(BlockIndex index) {
    const auto block = static_cast<std::int32_t>(index);
    FSDPLAN_ASSERT(block >= 0 && at(block) < blocks_.size(), "allocate() gave it out");
    Block& record = blocks_[at(block)];
    FSDPLAN_ASSERT(record.state == State::allocated, "a block is freed once");
    statistics_.allocated_bytes -= record.bytes;
    if (record.recorded == 0) {
        release(block);
        return;
    }
    record.state = State::waiting;
    record.events = static_cast<std::uint8_t>(std::popcount(record.recorded));
    streams_waiting_ |= record.recorded;
    for (std::uint64_t left = record.recorded; left != 0; left &= left - 1) {
        Stream& stream = streams_[static_cast<std::size_t>(std::countr_zero(left))];
        stream.events.push_back({.block = block, .position = stream.issued});
    }
}

void CachingAllocator::record_stream(BlockIndex index, int stream) {
    need_stream(stream);
    Block& record = blocks_[static_cast<std::size_t>(index)];
    FSDPLAN_ASSERT(record.state == State::allocated, "only a block in use can be used by a stream");
    if (record.pool / 2 != stream) {
        record.recorded |= bit(stream);
    }
}

/// Makes a block free whose last use is over.
void CachingAllocator::release(std::int32_t block) {
    Block& record = blocks_[at(block)];
    statistics_.active_bytes -= record.bytes;
    statistics_.requested_bytes -= record.requested_bytes;
    record.requested_bytes = 0;
    merge(block);
}

// Events.

void CachingAllocator::issued(int stream, std::int64_t position) {
    need_stream(stream);
    streams_[static_cast<std::size_t>(stream)].issued = position;
}

void CachingAllocator::reached(int stream, std::int64_t position) {
    need_stream(stream);
    streams_[static_cast<std::size_t>(stream)].reached = position;
}

void CachingAllocator::complete(int stream) {
    need_stream(stream);
    Stream& record = streams_[static_cast<std::size_t>(stream)];
    record.done = record.events.size();
}

void CachingAllocator::synchronize() {
    for (Stream& stream : streams_) {
        stream.done = stream.events.size();
    }
}

void CachingAllocator::poll() {
    for (std::uint64_t left = streams_waiting_; left != 0; left &= left - 1) {
        const int number = std::countr_zero(left);
        Stream& stream = streams_[static_cast<std::size_t>(number)];
        const std::int64_t reached = std::max(stream.reached, reached_everywhere_);
        while (stream.head < stream.events.size()) {
            const Event& event = stream.events[stream.head];
            if (stream.head >= stream.done && event.position > reached) {
                break;  // a stream works in order
            }
            ++stream.head;
            if (--blocks_[at(event.block)].events == 0) {
                release(event.block);
            }
        }
        constexpr std::size_t worth_moving = 1024;
        if (stream.head == stream.events.size() ||
            (stream.head >= worth_moving && 2 * stream.head >= stream.events.size())) {
            stream.events.erase(stream.events.begin(),
                                stream.events.begin() + static_cast<std::ptrdiff_t>(stream.head));
            stream.done -= std::min(stream.done, stream.head);
            stream.head = 0;
        }
        if (stream.events.empty()) {
            streams_waiting_ &= ~bit(number);
        }
    }
}

void CachingAllocator::wait_for_events() {
    if (streams_waiting_ != 0) {
        ++statistics_.device_waits;
        synchronize();
        poll();
    }
}

}  // namespace fsdplan
