#pragma once

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "fsdplan/allocator.hpp"

// What the files of the allocator share.
namespace fsdplan::allocator {

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

// No block is as large as the largest size that a key can hold; a request may be, and then finds none.
inline std::uint64_t key_of(std::int64_t bytes, std::int32_t block) {
    constexpr std::int64_t largest = (std::int64_t{1} << (64U - block_bits)) - 1;
    return (static_cast<std::uint64_t>(std::min(bytes / min_block, largest)) << block_bits) |
           static_cast<std::uint64_t>(block);
}
inline std::int32_t block_of(std::uint64_t key) {
    return static_cast<std::int32_t>(key & block_mask);
}
inline std::int64_t bytes_of(std::uint64_t key) {
    return static_cast<std::int64_t>(key >> block_bits) * min_block;
}
inline std::size_t at(std::int32_t index) {
    return static_cast<std::size_t>(index);
}
inline bool is_small(std::int32_t pool) {
    return pool % 2 == 0;
}
inline std::uint64_t bit(int stream) {
    return std::uint64_t{1} << static_cast<unsigned>(stream);
}

/// How many of `size` numbers from 0 pass a test that only the first ones pass. Without branches that a
/// processor would have to guess: half of the guesses would be wrong.
template <class Test>
inline std::size_t partition_size(std::size_t size, const Test& test) {
    std::size_t base = 0;
    while (size > 1) {
        const std::size_t half = size / 2;
        base += half & (std::size_t{0} - static_cast<std::size_t>(test(base + half - 1)));
        size -= half;
    }
    return base + (size == 1 && test(base) ? 1 : 0);
}

using Keys = std::vector<std::uint64_t>;

inline std::size_t count_before(const std::uint64_t* keys, std::size_t size, std::uint64_t key) {
    return partition_size(size, [&](std::size_t i) { return keys[i] < key; });
}

}  // namespace fsdplan::allocator

namespace fsdplan {

inline std::int32_t CachingAllocator::new_block() {
    if (unused_blocks_ >= 0) {
        const std::int32_t block = unused_blocks_;
        unused_blocks_ = blocks_[allocator::at(block)].next;
        return block;
    }
    if (blocks_.size() > allocator::block_mask) {
        throw Error(ErrorKind::input, "allocator", "more than 67 million blocks at a time");
    }
    blocks_.emplace_back();
    return static_cast<std::int32_t>(blocks_.size() - 1);
}

/// Visits a block and everything below it in its heap.
template <class Visitor>
void CachingAllocator::for_each_of_size(std::int32_t root, const Visitor& visit) const {
    std::int32_t block = root;
    while (block >= 0) {
        visit(block);
        if (blocks_[allocator::at(block)].child >= 0) {
            block = blocks_[allocator::at(block)].child;
            continue;
        }
        // Up to the nearest block with a sibling; on the way `back` leads over the siblings before.
        while (block >= 0 && blocks_[allocator::at(block)].sibling < 0) {
            std::int32_t below = block;
            block = blocks_[allocator::at(block)].back;
            while (block >= 0 && blocks_[allocator::at(block)].child != below) {
                below = block;
                block = blocks_[allocator::at(block)].back;
            }
        }
        block = block < 0 ? -1 : blocks_[allocator::at(block)].sibling;
    }
}

template <class Visitor>
void CachingAllocator::for_each_free(const Visitor& visit) const {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
        if (blocks_[i].state == State::free) {
            visit(static_cast<std::int32_t>(i));
        }
    }
}

}  // namespace fsdplan
