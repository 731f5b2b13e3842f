#include "allocator/internals.hpp"

namespace fsdplan {

using namespace allocator;

void CachingAllocator::reset_peaks() {
    statistics_.allocated_peak_bytes = statistics_.allocated_bytes;
    statistics_.active_peak_bytes = statistics_.active_bytes;
    statistics_.requested_peak_bytes = statistics_.requested_bytes;
    statistics_.reserved_peak_bytes = statistics_.reserved_bytes;
}

std::int64_t CachingAllocator::inactive_split_bytes() const {
    std::int64_t sum = 0;
    for_each_free([&](std::int32_t block) {
        const Block& record = blocks_[at(block)];
        const bool whole = record.previous < 0 && record.next < 0;
        sum += whole || options_.expandable_segments ? 0 : record.bytes;
    });
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
