#include "fsdplan/allocator.hpp"

#include <algorithm>
#include <bit>
#include <string>

// The rules are those that the recordings in tests/golden/allocator show; names follow PyTorch where it has
// one.
namespace fsdplan {
namespace {

constexpr std::int64_t min_block = 512;
constexpr std::int64_t mib = std::int64_t{1} << 20U;
constexpr std::int64_t small_limit = mib;        // requests up to here are served from small segments
constexpr std::int64_t small_segment = 2 * mib;  // also the page of small reservations
constexpr std::int64_t own_size_limit =
    10 * mib;  // requests from here on get a segment of their own size ...
constexpr std::int64_t own_size_rounding = 2 * mib;  // ... rounded up to this
constexpr std::int64_t granule = 2 * mib;            // in which the driver hands out device memory

constexpr unsigned block_bits = 26;
constexpr std::uint64_t block_mask = (std::uint64_t{1} << block_bits) - 1;

constexpr std::size_t nowhere = ~std::size_t{0};

std::uint64_t key_of(std::int64_t bytes, std::int32_t block) {
    return (static_cast<std::uint64_t>(bytes / min_block) << block_bits) | static_cast<std::uint64_t>(block);
}
std::int32_t block_of(std::uint64_t key) {
    return static_cast<std::int32_t>(key & block_mask);
}
std::int64_t bytes_of(std::uint64_t key) {
    return static_cast<std::int64_t>(key >> block_bits) * min_block;
}
std::size_t at(std::int32_t index) {
    return static_cast<std::size_t>(index);
}
bool is_small(std::int32_t pool) {
    return pool % 2 == 0;
}
std::uint64_t bit(int stream) {
    return std::uint64_t{1} << static_cast<unsigned>(stream);
}

using Keys = std::vector<std::uint64_t>;

/// Moves the key at `from` to `to`, both counted with the key in place, and writes it as `key` there.
void move_key(Keys& keys, std::size_t from, std::size_t to, std::uint64_t key) {
    const auto begin = keys.begin();
    const auto offset = [](std::size_t n) { return static_cast<std::ptrdiff_t>(n); };
    if (to < from) {
        std::move_backward(begin + offset(to), begin + offset(from), begin + offset(from) + 1);
    } else {
        std::move(begin + offset(from) + 1, begin + offset(to) + 1, begin + offset(from));
    }
    keys[to] = key;
}

}  // namespace

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

std::int64_t CachingAllocator::rounded(std::int64_t size) const {
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

std::int64_t CachingAllocator::segment_bytes(std::int64_t rounded_size) const {
    if (rounded_size <= small_limit) {
        return small_segment;
    }
    return rounded_size < own_size_limit ? options_.large_segment_bytes
                                         : round_up(rounded_size, own_size_rounding);
}

std::int64_t CachingAllocator::page_bytes(std::int32_t pool) const {
    return is_small(pool) ? small_segment : options_.large_segment_bytes;
}

bool CachingAllocator::splits(std::int32_t pool, std::int64_t size, std::int64_t rest) const {
    if (is_small(pool) || options_.expandable_segments) {
        return rest >= min_block;
    }
    return size < options_.max_split_bytes && rest > small_limit;
}

void CachingAllocator::need_stream(int stream) {
    FSDPLAN_ASSERT(stream >= 0 && stream < most_streams, "streams are numbered from 0");
    if (static_cast<std::size_t>(stream) >= streams_.size()) {
        streams_.resize(static_cast<std::size_t>(stream) + 1);
        pools_.resize(2 * streams_.size());
    }
}

// The free blocks of a pool: one sorted array of keys. A pool seldom has more than some hundred of them, and
// moving that many numbers is cheaper than walking a tree.

/// Where a free block of these bytes and this address belongs among the first `end` keys.
std::size_t CachingAllocator::place_of(const Pool& pool, std::int64_t bytes, std::int64_t address,
                                       std::size_t end) const {
    const auto stop = pool.free.begin() + static_cast<std::ptrdiff_t>(end);
    const std::uint64_t least = key_of(bytes, 0);
    auto first = std::lower_bound(pool.free.begin(), stop, least);
    if (first != stop && *first <= (least | block_mask)) {
        const auto last = std::upper_bound(first, stop, least | block_mask);
        first = std::partition_point(
            first, last, [&](std::uint64_t key) { return blocks_[at(block_of(key))].address < address; });
    }
    return static_cast<std::size_t>(first - pool.free.begin());
}

std::size_t CachingAllocator::place_of(const Pool& pool, std::int32_t block) const {
    const Block& record = blocks_[at(block)];
    return place_of(pool, record.bytes, record.address, pool.free.size());
}

void CachingAllocator::insert_free(std::int32_t block) {
    Block& record = blocks_[at(block)];
    Pool& pool = pools_[at(record.pool)];
    record.state = State::free;
    record.freed_at = searches_;
    const std::size_t place = place_of(pool, block);
    pool.free.insert(pool.free.begin() + static_cast<std::ptrdiff_t>(place), key_of(record.bytes, block));
}

void CachingAllocator::erase_free(std::int32_t block) {
    Pool& pool = pools_[at(blocks_[at(block)].pool)];
    pool.free.erase(pool.free.begin() + static_cast<std::ptrdiff_t>(place_of(pool, block)));
}

std::int64_t CachingAllocator::extended_bytes(std::uint64_t key) const {
    const std::int32_t next = blocks_[at(block_of(key))].next;
    const bool grows = next >= 0 && blocks_[at(next)].state == State::unmapped;
    return bytes_of(key) + (grows ? blocks_[at(next)].bytes : 0);
}

// A block that can still grow counts as large as it can become, so that the tail of a reservation is used
// last. The walk stops at the first larger block that would not be better, even if one behind it were.
std::size_t CachingAllocator::least_extended(const Pool& pool, std::size_t place) const {
    while (place + 1 < pool.free.size() &&
           extended_bytes(pool.free[place + 1]) < extended_bytes(pool.free[place])) {
        ++place;
    }
    return place;
}

std::size_t CachingAllocator::best_fit(const Pool& pool, std::int64_t size) const {
    const auto found = std::lower_bound(pool.free.begin(), pool.free.end(), key_of(size, 0));
    if (found == pool.free.end()) {
        return nowhere;
    }
    auto place = static_cast<std::size_t>(found - pool.free.begin());
    if (options_.expandable_segments) {
        place = least_extended(pool, place);
    }
    // Only this one candidate is looked at: a block that may not be split is kept for large requests, and a
    // large request does not take one that is much too large.
    const std::int64_t bytes = bytes_of(pool.free[place]);
    const bool oversize = size < options_.max_split_bytes
                              ? bytes >= options_.max_split_bytes
                              : bytes >= size + options_.max_non_split_rounding_bytes;
    return oversize ? nowhere : place;
}

// Block records.

std::int32_t CachingAllocator::new_block() {
    if (unused_blocks_ >= 0) {
        const std::int32_t block = unused_blocks_;
        unused_blocks_ = blocks_[at(block)].next;
        return block;
    }
    if (blocks_.size() > block_mask) {
        throw Error(ErrorKind::input, "allocator", "more than 67 million blocks at a time");
    }
    blocks_.emplace_back();
    return static_cast<std::int32_t>(blocks_.size() - 1);
}

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
    const bool joins_previous = is_free(previous);
    if (is_free(next)) {
        if (joins_previous) {
            erase_free(next);
        } else {
            // The neighbour's key becomes the key of both.
            Pool& pool = pools_[at(blocks_[at(block)].pool)];
            const std::size_t from = place_of(pool, next);
            Block& record = blocks_[at(absorb_next(block))];
            const std::size_t to = place_of(pool, record.bytes, record.address, pool.free.size()) - 1;
            record.state = State::free;
            record.freed_at = searches_;
            move_key(pool.free, from, to, key_of(record.bytes, block));
            return block;
        }
        absorb_next(block);
    }
    if (!joins_previous) {
        insert_free(block);
        return block;
    }
    Pool& pool = pools_[at(blocks_[at(previous)].pool)];
    const std::size_t from = place_of(pool, previous);
    Block& record = blocks_[at(absorb_next(previous))];
    const std::size_t to = place_of(pool, record.bytes, record.address, pool.free.size()) - 1;
    record.freed_at = searches_;
    move_key(pool.free, from, to, key_of(record.bytes, previous));
    return previous;
}

std::int32_t CachingAllocator::new_segment(std::int32_t pool, std::int64_t bytes, State state) {
    constexpr std::int64_t last_address = std::int64_t{1} << 62U;
    if (next_address_ > last_address) {
        throw Error(ErrorKind::input, "allocator", "addresses of segments are used up");
    }
    const std::int32_t block = new_block();
    if (unused_segments_.empty()) {
        unused_segments_.push_back(static_cast<std::int32_t>(segments_.size()));
        segments_.emplace_back();
    }
    const std::int32_t slot = unused_segments_.back();
    unused_segments_.pop_back();
    segments_[at(slot)] = {
        .number = next_number_++, .address = next_address_, .bytes = bytes, .first = block};
    blocks_[at(block)] = {
        .address = next_address_, .bytes = bytes, .segment = slot, .pool = pool, .state = state};
    next_address_ += round_up(bytes, granule);
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
    std::size_t place = best_fit(pool, request.bytes);
    std::int32_t block = -1;
    if (place != nowhere) {
        block = block_of(pool.free[place]);
    } else {
        block = grow(request);
        if (block < 0) {
            return {.outcome = Allocation::Outcome::out_of_memory};
        }
        place = place_of(pool, block);
    }
    if (splits(request.pool, request.bytes, blocks_[at(block)].bytes - request.bytes)) {
        const std::int32_t rest = split(block, request.bytes);
        const Block& record = blocks_[at(rest)];
        move_key(pool.free, place, place_of(pool, record.bytes, record.address, place),
                 key_of(record.bytes, rest));
    } else {
        pool.free.erase(pool.free.begin() + static_cast<std::ptrdiff_t>(place));
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
    record.events = std::popcount(record.recorded);
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

// Misses.

/// A free block of at least the request's size, which was not there before; -1 when there is no memory.
std::int32_t CachingAllocator::grow(const Request& request) {
    if (limit_ != AllocatorOptions::unlimited && options_.garbage_collection_threshold > 0.0) {
        collect_garbage();
    }
    if (options_.throw_on_cudamalloc_oom && segment_bytes(request.bytes) > device_free_bytes()) {
        return -1;
    }
    std::int32_t block = ask(request);
    if (block < 0 && release_oversize(request)) {
        block = ask(request);
    }
    if (block < 0) {
        wait_for_events();
        free_segments();
        ++statistics_.alloc_retries;
        block = ask(request);
    }
    if (block < 0) {
        ++statistics_.ooms;
    }
    return block;
}

std::int32_t CachingAllocator::ask(const Request& request) {
    if (statistics_.reserved_bytes + segment_bytes(request.bytes) > limit_) {
        return -1;
    }
    return options_.expandable_segments ? ask_for_pages(request) : ask_for_segment(request);
}

std::int32_t CachingAllocator::ask_for_segment(const Request& request) {
    const std::int64_t bytes = segment_bytes(request.bytes);
    if (round_up(bytes, granule) > device_free_bytes()) {
        log({.kind = DriverCall::Kind::refused, .bytes = bytes});
        return -1;
    }
    const std::int32_t block = new_segment(request.pool, bytes, State::free);
    device_used_ += round_up(bytes, granule);
    ++statistics_.segments;
    statistics_.reserved_bytes += bytes;
    statistics_.reserved_peak_bytes = std::max(statistics_.reserved_peak_bytes, statistics_.reserved_bytes);
    insert_free(block);
    log({.kind = DriverCall::Kind::malloc,
         .segment = segments_[at(blocks_[at(block)].segment)].number,
         .bytes = bytes});
    return block;
}

/// The block's segment goes back to the driver; the block is all of it.
void CachingAllocator::free_segment(std::int32_t block) {
    const std::int32_t slot = blocks_[at(block)].segment;
    Segment& segment = segments_[at(slot)];
    FSDPLAN_ASSERT(segment.first == block && segment.bytes == blocks_[at(block)].bytes,
                   "only whole segments go back");
    log({.kind = DriverCall::Kind::free, .segment = segment.number});
    device_used_ -= round_up(segment.bytes, granule);
    --statistics_.segments;
    statistics_.reserved_bytes -= segment.bytes;
    ++statistics_.device_waits;
    synchronize();  // the driver waits for the device first
    segment.first = -1;
    unused_segments_.push_back(slot);
    drop_block(block);
}

void CachingAllocator::free_segments() {
    if (options_.expandable_segments) {
        scratch_.clear();
        for (const Pool& pool : pools_) {
            for (const std::uint64_t key : pool.free) {
                scratch_.push_back(block_of(key));
            }
        }
        for (const std::int32_t block : scratch_) {
            unmap(block);
        }
        return;
    }
    for (Pool& pool : pools_) {
        std::erase_if(pool.free, [&](std::uint64_t key) {
            const std::int32_t block = block_of(key);
            const bool whole = blocks_[at(block)].previous < 0 && blocks_[at(block)].next < 0;
            if (whole) {
                free_segment(block);
            }
            return whole;
        });
    }
}

void CachingAllocator::empty_cache() {
    wait_for_events();
    free_segments();
}

/// Gives oversize blocks back: the smallest that is large enough, else from the largest down until their sum
/// is.
bool CachingAllocator::release_oversize(const Request& request) {
    if (options_.max_split_bytes == AllocatorOptions::unlimited || options_.expandable_segments) {
        return false;
    }
    Pool& pool = pools_[at(request.pool)];
    const std::int64_t enough = std::max(request.bytes, options_.max_split_bytes);
    const auto found = std::lower_bound(pool.free.begin(), pool.free.end(), key_of(enough, 0));
    if (found != pool.free.end()) {
        const std::int32_t block = block_of(*found);
        pool.free.erase(found);
        free_segment(block);
        return true;
    }
    std::int64_t sum = 0;
    while (sum < enough && !pool.free.empty() && bytes_of(pool.free.back()) >= options_.max_split_bytes) {
        sum += bytes_of(pool.free.back());
        const std::int32_t block = block_of(pool.free.back());
        pool.free.pop_back();
        free_segment(block);
    }
    return sum >= enough;
}

/// Gives whole free segments of large blocks back, those first that no request has wanted for long.
void CachingAllocator::collect_garbage() {
    const auto threshold =
        static_cast<std::int64_t>(options_.garbage_collection_threshold * static_cast<double>(limit_));
    const std::int64_t excess = statistics_.reserved_bytes - threshold;
    if (excess <= 0 || options_.expandable_segments) {
        return;
    }
    const auto age = [&](std::int32_t block) { return searches_ - blocks_[at(block)].freed_at; };
    std::uint64_t ages = 0;
    scratch_.clear();
    for (std::size_t large = 1; large < pools_.size(); large += 2) {
        for (const std::uint64_t key : pools_[large].free) {
            const Block& record = blocks_[at(block_of(key))];
            if (record.previous < 0 && record.next < 0) {
                scratch_.push_back(block_of(key));
                ages += age(block_of(key));
            }
        }
    }
    std::int64_t freed = 0;
    while (freed < excess && !scratch_.empty()) {
        const double oldest = static_cast<double>(ages) / static_cast<double>(scratch_.size());
        std::erase_if(scratch_, [&](std::int32_t block) {
            if (static_cast<double>(age(block)) < oldest) {
                return false;
            }
            freed += blocks_[at(block)].bytes;
            ages -= age(block);
            erase_free(block);
            free_segment(block);
            return true;
        });
    }
}

// Expandable segments: a reservation of addresses for each pool of a stream, mapped page by page. What is not
// mapped is a block of its own kind among the others.

/// The first block of a run of free and unmapped ones that is long enough, in a new reservation if need be.
std::int32_t CachingAllocator::expandable_range(const Request& request) {
    const auto usable = [&](std::int32_t b) {
        return b >= 0 && (blocks_[at(b)].state == State::free || blocks_[at(b)].state == State::unmapped);
    };
    for (const std::int32_t range : pools_[at(request.pool)].unmapped) {
        const std::int32_t before = blocks_[at(range)].previous;
        const std::int32_t first = usable(before) ? before : range;
        std::int64_t bytes = 0;
        for (std::int32_t b = first; usable(b) && bytes < request.bytes; b = blocks_[at(b)].next) {
            bytes += blocks_[at(b)].bytes;
        }
        if (bytes >= request.bytes) {
            return first;
        }
    }
    const std::int64_t bytes = round_up(memory_ + memory_ / 8, page_bytes(request.pool));
    const std::int32_t block = new_segment(request.pool, bytes, State::unmapped);
    pools_[at(request.pool)].unmapped.push_back(block);  // above all others
    log({.kind = DriverCall::Kind::reserve,
         .segment = segments_[at(blocks_[at(block)].segment)].number,
         .bytes = bytes});
    return block;
}

std::int32_t CachingAllocator::ask_for_pages(const Request& request) {
    std::int32_t block = expandable_range(request);
    if (blocks_[at(block)].state == State::unmapped) {
        block = map(block, request.bytes);
    }
    while (block >= 0 && blocks_[at(block)].bytes < request.bytes) {
        const std::int32_t next = blocks_[at(block)].next;
        block = next < 0 ? -1 : map(next, request.bytes - blocks_[at(block)].bytes);
    }
    return block;
}

/// Maps the first `bytes` of an unmapped range, in whole pages, or all of it when it is shorter. Returns the
/// free block that holds them, or -1 when the driver refuses.
std::int32_t CachingAllocator::map(std::int32_t block, std::int64_t bytes) {
    const std::int32_t pool_index = blocks_[at(block)].pool;
    const std::int64_t page = page_bytes(pool_index);
    const std::int64_t mapped = round_up(std::min(bytes, blocks_[at(block)].bytes), page);
    const std::int64_t device_bytes = mapped / page * round_up(page, granule);
    if (device_bytes > device_free_bytes()) {
        log({.kind = DriverCall::Kind::refused, .bytes = page});
        return -1;
    }
    Pool& pool = pools_[at(pool_index)];
    const auto listed = std::ranges::find(pool.unmapped, block);
    if (mapped < blocks_[at(block)].bytes) {
        *listed = split(block, mapped);
    } else {
        pool.unmapped.erase(listed);
    }
    device_used_ += device_bytes;
    statistics_.reserved_bytes += mapped;
    statistics_.reserved_peak_bytes = std::max(statistics_.reserved_peak_bytes, statistics_.reserved_bytes);
    const Segment& segment = segments_[at(blocks_[at(block)].segment)];
    log({.kind = DriverCall::Kind::map,
         .segment = segment.number,
         .offset_bytes = blocks_[at(block)].address - segment.address,
         .bytes = mapped});
    return merge(block);
}

/// Gives the pages back that lie wholly inside a free block, and the reservation when nothing of it is
/// mapped.
void CachingAllocator::unmap(std::int32_t block) {
    const std::int32_t pool_index = blocks_[at(block)].pool;
    const std::int32_t slot = blocks_[at(block)].segment;
    const std::int64_t page = page_bytes(pool_index);
    const std::int64_t begin = blocks_[at(block)].address - segments_[at(slot)].address;
    const std::int64_t end = begin + blocks_[at(block)].bytes;
    const std::int64_t first = round_up(begin, page);
    const std::int64_t last = end / page * page;
    if (first >= last) {
        return;
    }
    erase_free(block);
    if (first > begin) {
        const std::int32_t inner = split(block, first - begin);
        insert_free(block);
        block = inner;
    }
    if (last < end) {
        insert_free(split(block, last - first));
    }
    device_used_ -= (last - first) / page * round_up(page, granule);
    statistics_.reserved_bytes -= last - first;
    log({.kind = DriverCall::Kind::unmap,
         .segment = segments_[at(slot)].number,
         .offset_bytes = first,
         .bytes = last - first});
    // Only events of the reservation's own stream complete here, and step d has waited for all of them
    // before.
    ++statistics_.device_waits;

    std::vector<std::int32_t>& unmapped = pools_[at(pool_index)].unmapped;
    const auto is_unmapped = [&](std::int32_t b) {
        return b >= 0 && blocks_[at(b)].state == State::unmapped;
    };
    blocks_[at(block)].state = State::unmapped;
    if (is_unmapped(blocks_[at(block)].next)) {
        std::erase(unmapped, blocks_[at(block)].next);
        absorb_next(block);
    }
    if (is_unmapped(blocks_[at(block)].previous)) {
        block = blocks_[at(block)].previous;
        std::erase(unmapped, block);
        absorb_next(block);
    }
    if (blocks_[at(block)].previous < 0 && blocks_[at(block)].next < 0) {
        log({.kind = DriverCall::Kind::unreserve, .segment = segments_[at(slot)].number});
        segments_[at(slot)].first = -1;
        unused_segments_.push_back(slot);
        drop_block(block);
        return;
    }
    const std::int64_t address = blocks_[at(block)].address;
    unmapped.insert(std::ranges::partition_point(
                        unmapped, [&](std::int32_t b) { return blocks_[at(b)].address < address; }),
                    block);
}

// What is there.

void CachingAllocator::reset_peaks() {
    statistics_.allocated_peak_bytes = statistics_.allocated_bytes;
    statistics_.active_peak_bytes = statistics_.active_bytes;
    statistics_.requested_peak_bytes = statistics_.requested_bytes;
    statistics_.reserved_peak_bytes = statistics_.reserved_bytes;
}

std::int64_t CachingAllocator::inactive_split_bytes() const {
    std::int64_t sum = 0;
    for (const Pool& pool : pools_) {
        for (const std::uint64_t key : pool.free) {
            const Block& record = blocks_[at(block_of(key))];
            const bool whole = record.previous < 0 && record.next < 0;
            sum += whole || options_.expandable_segments ? 0 : record.bytes;
        }
    }
    return sum;
}

CachingAllocator::BlockView CachingAllocator::view(std::int32_t block) const {
    const Block& record = blocks_[at(block)];
    return {.block = BlockIndex{block},
            .address = record.address,
            .bytes = record.bytes,
            .requested_bytes = record.requested_bytes,
            .stream = record.pool / 2,
            .state = record.state};
}

std::vector<CachingAllocator::SegmentView> CachingAllocator::layout() const {
    std::vector<SegmentView> out;
    for (const Segment& segment : segments_) {
        bool mapped = false;
        for (std::int32_t b = segment.first; b >= 0; b = blocks_[at(b)].next) {
            const Block& record = blocks_[at(b)];
            const bool was_mapped = mapped;
            mapped = record.state != State::unmapped;
            if (!mapped) {
                continue;
            }
            if (!was_mapped) {
                out.push_back({.segment = segment.number,
                               .address = record.address,
                               .offset_bytes = record.address - segment.address,
                               .stream = record.pool / 2,
                               .small = is_small(record.pool)});
            }
            out.back().bytes += record.bytes;
            out.back().blocks.push_back(view(b));
        }
    }
    std::ranges::sort(out, {}, &SegmentView::address);
    return out;
}

}  // namespace fsdplan
