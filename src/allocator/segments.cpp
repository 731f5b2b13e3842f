#include "allocator/internals.hpp"

// Where blocks come from and go to: what happens when no free block fits, and what gives memory back to the
// driver.
namespace fsdplan {

using namespace allocator;

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

inline std::int32_t CachingAllocator::new_slot() {
    if (unused_segments_.empty()) {
        segments_.emplace_back();
        return static_cast<std::int32_t>(segments_.size() - 1);
    }
    const std::int32_t slot = unused_segments_.back();
    unused_segments_.pop_back();
    return slot;
}

std::int32_t CachingAllocator::new_segment(std::int32_t pool, std::int64_t bytes, State state) {
    constexpr std::int64_t last_address = std::int64_t{1} << 62U;
    if (next_address_ > last_address) {
        throw Error(ErrorKind::input, "allocator", "addresses of segments are used up");
    }
    const std::int32_t block = new_block();
    const std::int32_t slot = new_slot();
    segments_[at(slot)] = {
        .number = next_number_++, .address = next_address_, .bytes = bytes, .first = block};
    blocks_[at(block)] = {.address = next_address_,
                          .bytes = bytes,
                          .segment = slot,
                          .pool = static_cast<std::uint8_t>(pool),
                          .state = state};
    next_address_ += round_up(bytes, granule);
    return block;
}

/// A free block of at least the request's size, which was not there before; -1 when there is no memory. A
/// segment of its own is not filed among the free blocks.
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

inline std::int32_t CachingAllocator::ask(const Request& request) {
    if (statistics_.reserved_bytes + segment_bytes(request.bytes) > limit_) {
        return -1;
    }
    return options_.expandable_segments ? ask_for_pages(request) : ask_for_segment(request);
}

inline std::int32_t CachingAllocator::ask_for_segment(const Request& request) {
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
    scratch_.clear();
    for_each_free([&](std::int32_t block) {
        const bool whole = blocks_[at(block)].previous < 0 && blocks_[at(block)].next < 0;
        if (whole || options_.expandable_segments) {
            scratch_.push_back(block);
        }
    });
    for (const std::int32_t block : scratch_) {
        if (options_.expandable_segments) {
            unmap(block);
        } else {
            erase_free(block);
            free_segment(block);
        }
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
    const std::size_t place = count_before(pool.free.data(), pool.free.size(), key_of(enough, 0));
    if (place < pool.free.size()) {
        const std::int32_t block = block_of(pool.free[place]);
        erase_free(block);
        free_segment(block);
        return true;
    }
    std::int64_t sum = 0;
    while (sum < enough && !pool.free.empty() && bytes_of(pool.free.back()) >= options_.max_split_bytes) {
        std::int32_t highest = block_of(pool.free.back());
        for_each_of_size(highest, [&](std::int32_t b) {
            highest = blocks_[at(b)].address > blocks_[at(highest)].address ? b : highest;
        });
        sum += blocks_[at(highest)].bytes;
        erase_free(highest);
        free_segment(highest);
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
    for_each_free([&](std::int32_t block) {
        const Block& record = blocks_[at(block)];
        if (!is_small(record.pool) && record.previous < 0 && record.next < 0) {
            scratch_.push_back(block);
            ages += age(block);
        }
    });
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

}  // namespace fsdplan
