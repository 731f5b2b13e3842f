#include "allocator/internals.hpp"

// Expandable segments: a reservation of addresses for each pool of a stream, mapped page by page. What is not
// mapped is a block of its own kind among the others.
namespace fsdplan {

using namespace allocator;

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

}  // namespace fsdplan
