#include "checkpoint/saved_bytes.hpp"

#include <algorithm>
#include <string_view>

#include "fsdplan/checkpoint.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t alignment = 64;
// Between the end of a payload and the next one lie a data descriptor and the next record's header.
constexpr std::int64_t behind_pickle = 73;
constexpr std::int64_t behind_storage = 65;
constexpr std::int64_t other_records_of_objects = 1133;
constexpr std::int64_t other_records_of_tensors = 1193;

std::int64_t pickled_integer_bytes(std::int64_t value) {
    if (value < (std::int64_t{1} << 8U)) {
        return 2;
    }
    if (value < (std::int64_t{1} << 16U)) {
        return 3;
    }
    if (value < (std::int64_t{1} << 31U)) {
        return 5;
    }
    std::int64_t bytes = 2;  // opcode and length
    for (std::int64_t left = value; left > 0; left >>= 8U) {
        ++bytes;
    }
    return bytes + (((value >> ((bytes - 3) * 8U)) & 0x80U) != 0 ? 1 : 0);
}

std::int64_t pickled_tuple_bytes(std::size_t size) {
    return size == 0 ? 1 : size <= 3 ? 3 : 4;  // with its memo
}

/// The pickle's size apart from the numbers: the storage's class decides.
std::int64_t pickle_frame_bytes(DType dtype) {
    constexpr std::int64_t typed = 138 - 12;  // 12: "FloatStorage"
    switch (dtype) {
        case DType::float32:
            return typed + 12;
        case DType::bfloat16:
            return typed + 15;
        case DType::float64:
        case DType::int16:
            return typed + (dtype == DType::float64 ? 13 : 12);
        case DType::float16:
        case DType::int64:
        case DType::uint8:
        case DType::int8:
        case DType::boolean:
            return typed + 11;
        case DType::int32:
            return typed + 10;
        default: {
            constexpr std::int64_t untyped = 171 - 13;  // 13: "float8_e4m3fn"
            return untyped + static_cast<std::int64_t>(name(dtype).size());
        }
    }
}

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

std::int64_t saved_tensor_bytes(const std::vector<std::int64_t>& shape, DType dtype) {
    std::int64_t numel = 1;
    std::int64_t numbers = 0;
    for (std::size_t i = shape.size(); i-- > 0;) {
        numbers += pickled_integer_bytes(shape[i]) + pickled_integer_bytes(numel);  // size and stride
        numel *= std::max<std::int64_t>(shape[i], 1);
    }
    const bool empty = std::ranges::find(shape, 0) != shape.end();
    const std::int64_t bytes = empty ? 0 : bytes_of(numel, dtype).count;
    const std::int64_t pickle = pickle_frame_bytes(dtype) + numbers + 2 * pickled_tuple_bytes(shape.size()) +
                                pickled_integer_bytes(empty ? 0 : numel);
    return other_records_of_tensors + round_up(pickle + behind_pickle, alignment) +
           (bytes == 0 ? alignment : round_up(bytes + behind_storage, alignment));
}

}  // namespace fsdplan
