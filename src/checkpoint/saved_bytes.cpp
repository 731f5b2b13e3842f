#include "checkpoint/saved_bytes.hpp"

#include "fsdplan/base.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t alignment = 64;
// Between the end of a payload and the next one lie a data descriptor and the next record's header.
constexpr std::int64_t behind_pickle = 73;
constexpr std::int64_t other_records_of_objects = 1133;

}  // namespace

std::int64_t saved_object_bytes(std::int64_t pickle_bytes) {
    return other_records_of_objects + round_up(pickle_bytes + behind_pickle, alignment);
}

std::int64_t pickled_list_bytes(std::span<const std::int64_t> lengths) {
    constexpr std::int64_t around = 6;         // protocol, empty list with its memo, stop
    constexpr std::int64_t batch = 1000;       // strings between two marks
    constexpr std::int64_t short_memos = 256;  // later ones have numbers of four bytes
    const auto count = static_cast<std::int64_t>(lengths.size());
    std::int64_t bytes = around + 2 * ceil_div(count, batch);
    for (std::int64_t i = 0; i < count; ++i) {
        bytes += 5 + lengths[static_cast<std::size_t>(i)] + (i + 1 < short_memos ? 2 : 5);
    }
    return bytes;
}

}  // namespace fsdplan
