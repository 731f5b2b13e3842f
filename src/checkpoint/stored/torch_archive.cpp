#include "checkpoint/stored/torch_archive.hpp"

#include <limits>

#include "fsdplan/base.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t alignment = 64;
// Sizes of the records without names and extra fields (APPNOTE.TXT 6.3.10, section 4.3).
constexpr std::int64_t local_header = 30;
constexpr std::int64_t directory_header = 46;
constexpr std::int64_t end_records = 56 + 20 + 22;  // those of ZIP64 too, whatever the size
constexpr std::int64_t field_header = 4;
// From here on a size or position stands in the ZIP64 field.
constexpr std::int64_t zip64_limit = std::numeric_limits<std::uint32_t>::max();

}  // namespace

std::int64_t TorchArchive::add(std::string_view name, std::int64_t bytes) {
    const bool is_large = bytes >= zip64_limit;
    const bool is_far = end_ >= zip64_limit;
    const std::int64_t zip64_field =
        is_large || is_far ? field_header + (is_large ? 16 : 0) + (is_far ? 8 : 0) : 0;
    const auto name_bytes = static_cast<std::int64_t>(name.size());
    const std::int64_t padding_field = field_header;
    const std::int64_t begin =
        round_up(end_ + local_header + name_bytes + zip64_field + padding_field, alignment);
    const std::int64_t descriptor = bytes == 0 ? 0 : is_large || is_far ? 24 : 16;
    directory_ += directory_header + name_bytes + zip64_field;
    end_ = begin + bytes + descriptor;
    return begin;
}

std::int64_t TorchArchive::bytes() const {
    return end_ + directory_ + end_records;
}

}  // namespace fsdplan
