#include "model/safetensors_header.hpp"

#include <algorithm>
#include <array>

#include "base/file.hpp"
#include "base/json.hpp"
#include "model/read_shape.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t largest_header = 100'000'000;  // the limit of the safetensors library
constexpr int bits_per_byte = 8;

struct DTypeName {
    std::string_view name;
    DType dtype;
};

// In the order in which the library writes the tensors of a file.
constexpr std::array dtype_table{
    DTypeName{"U64", DType::uint64},
    DTypeName{"I64", DType::int64},
    DTypeName{"F64", DType::float64},
    DTypeName{"C64", DType::complex64},
    DTypeName{"F32", DType::float32},
    DTypeName{"U32", DType::uint32},
    DTypeName{"I32", DType::int32},
    DTypeName{"BF16", DType::bfloat16},
    DTypeName{"F16", DType::float16},
    DTypeName{"U16", DType::uint16},
    DTypeName{"I16", DType::int16},
    DTypeName{"F8_E5M2FNUZ", DType::float8_e5m2fnuz},
    DTypeName{"F8_E4M3FNUZ", DType::float8_e4m3fnuz},
    DTypeName{"F8_E8M0", DType::float8_e8m0fnu},
    DTypeName{"F8_E4M3", DType::float8_e4m3fn},
    DTypeName{"F8_E5M2", DType::float8_e5m2},
    DTypeName{"I8", DType::int8},
    DTypeName{"U8", DType::uint8},
    DTypeName{"F6_E3M2", DType::float6_e3m2fn},
    DTypeName{"F6_E2M3", DType::float6_e2m3fn},
    DTypeName{"F4", DType::float4_e2m1fn},
    DTypeName{"BOOL", DType::boolean},
};

DType dtype_of(json::Value value) {
    const std::optional<DType> dtype = dtype_of_safetensors(value.string());
    if (!dtype) {
        std::vector<std::string> known;
        for (const DTypeName& row : dtype_table) {
            known.emplace_back(row.name);
        }
        throw Error(ErrorKind::input, value.where(),
                    "unknown dtype " + value.shown() + did_you_mean(value.string(), known));
    }
    return *dtype;
}

/// Bytes of the tensor's data.
std::int64_t stored_bytes(const Tensor& tensor, json::Value entry) {
    const int width = bits(tensor.dtype);
    if (tensor.numel > largest_total / width) {
        throw Error(ErrorKind::input, entry.where(), "more than 2^53 bits; expected a tensor that can exist");
    }
    if (tensor.numel * width % bits_per_byte != 0) {
        throw Error(ErrorKind::input, entry.where(),
                    std::to_string(tensor.numel) + " elements of " + std::to_string(width) +
                        " bits do not fill whole bytes");
    }
    return tensor.numel * width / bits_per_byte;
}

struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    json::Value entry;
};

Range range_of(json::Value entry) {
    const json::Value offsets = entry.at("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2) {
        offsets.fail("two byte offsets");
    }
    auto element = offsets.elements().begin();
    const std::int64_t begin = (*element).integer(0, largest_total);
    ++element;
    const std::int64_t end = (*element).integer(0, largest_total);
    if (end < begin) {
        throw Error(ErrorKind::input, offsets.where(),
                    "ends at " + std::to_string(end) + ", before it begins at " + std::to_string(begin));
    }
    return {.begin = begin, .end = end, .entry = entry};
}

std::vector<std::pair<std::string, std::string>> read_metadata(json::Value metadata) {
    std::vector<std::pair<std::string, std::string>> out;
    for (const json::Value value : metadata.members()) {
        out.emplace_back(value.key(), value.string());
    }
    return out;
}

StoredTensor read_entry(json::Value entry, std::vector<Range>& ranges) {
    StoredTensor stored;
    stored.name = entry.key();
    stored.tensor.dtype = dtype_of(entry.at("dtype"));
    // torch lets only these require gradients.
    stored.tensor.requires_grad =
        is_floating_point(stored.tensor.dtype) || stored.tensor.dtype == DType::complex64;
    read_shape(entry.at("shape"), stored.tensor);
    const Range range = range_of(entry);
    const std::int64_t bytes = stored_bytes(stored.tensor, entry);
    if (range.end - range.begin != bytes) {
        throw Error(ErrorKind::input, entry.where(),
                    "data_offsets span " + std::to_string(range.end - range.begin) +
                        " bytes, but shape and dtype make " + std::to_string(bytes));
    }
    stored.begin = range.begin;
    ranges.push_back(range);
    return stored;
}

/// The sorted ranges must tile the data without holes; returns where they end.
std::int64_t end_of_tiling(std::vector<Range>& ranges) {
    std::ranges::sort(ranges, [](const Range& a, const Range& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
    });
    std::int64_t end = 0;
    for (const Range& range : ranges) {
        if (range.begin != end) {
            throw Error(ErrorKind::input, range.entry.at("data_offsets").where(),
                        "begins at " + std::to_string(range.begin) + ", but the tensor before it ends at " +
                            std::to_string(end) + (range.begin < end ? " (an overlap)" : " (a hole)"));
        }
        end = range.end;
    }
    return end;
}

std::string header_text(const std::filesystem::path& path, const std::string& shown, std::uintmax_t size) {
    if (size < length_bytes) {
        throw Error(
            ErrorKind::input, shown,
            "has " + std::to_string(size) + " bytes; a safetensors file begins with an 8-byte length");
    }
    std::uint64_t length = 0;
    const std::string head = read_range(path, 0, length_bytes);
    for (std::size_t i = 0; i < length_bytes; ++i) {
        length |= std::uint64_t{static_cast<unsigned char>(head[i])} << (bits_per_byte * i);
    }
    if (length > largest_header) {
        throw Error(ErrorKind::input, shown,
                    "announces a header of " + std::to_string(length) + " bytes; the limit is " +
                        std::to_string(largest_header));
    }
    if (length > size - length_bytes) {
        throw Error(ErrorKind::input, shown,
                    "announces a header of " + std::to_string(length) + " bytes, but only " +
                        std::to_string(size - length_bytes) + " follow; is it cut off?");
    }
    return read_range(path, length_bytes, static_cast<std::size_t>(length));
}

}  // namespace

std::optional<DType> dtype_of_safetensors(std::string_view name) {
    const auto found = std::ranges::find(dtype_table, name, &DTypeName::name);
    return found == dtype_table.end() ? std::nullopt : std::optional(found->dtype);
}

SafetensorsDType safetensors_dtype(DType dtype) {
    const auto found = std::ranges::find(dtype_table, dtype, &DTypeName::dtype);
    const auto place = static_cast<std::size_t>(found - dtype_table.begin());
    return {.name = found == dtype_table.end() ? std::string_view() : found->name, .place = place};
}

SafetensorsHeader read_safetensors_header(const std::filesystem::path& path, const std::string& shown) {
    const std::uintmax_t size = size_of_file(path);
    const std::string text = header_text(path, shown, size);
    const json::Document document(text, shown + " header");
    SafetensorsHeader header;
    std::vector<Range> ranges;
    header.tensors.reserve(document.root().size());
    ranges.reserve(document.root().size());
    for (const json::Value entry : document.root().members()) {
        if (entry.key() == "__metadata__") {
            header.metadata = read_metadata(entry);
        } else {
            header.tensors.push_back(read_entry(entry, ranges));
        }
    }
    header.declared = {end_of_tiling(ranges)};
    header.data_begin = static_cast<std::int64_t>(length_bytes + text.size());
    header.present = {static_cast<std::int64_t>(size) - header.data_begin};
    if (header.present < header.declared && header.present > Bytes{0}) {
        throw Error(ErrorKind::input, shown,
                    "has " + std::to_string(header.present.count) + " of " +
                        std::to_string(header.declared.count) + " bytes of data; is it cut off?");
    }
    if (header.present > header.declared) {
        throw Error(ErrorKind::input, shown,
                    "has " + std::to_string((header.present - header.declared).count) +
                        " bytes after the data that the header describes");
    }
    return header;
}

}  // namespace fsdplan
