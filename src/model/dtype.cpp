#include <algorithm>
#include <array>

#include "fsdplan/model.hpp"

namespace fsdplan {
namespace {

struct DTypeRow {
    DType dtype;
    std::string_view name;
    int bits;
    bool floating;
};

constexpr std::array rows{
    DTypeRow{DType::float64, "float64", 64, true},
    DTypeRow{DType::float32, "float32", 32, true},
    DTypeRow{DType::float16, "float16", 16, true},
    DTypeRow{DType::bfloat16, "bfloat16", 16, true},
    DTypeRow{DType::float8_e4m3fn, "float8_e4m3fn", 8, true},
    DTypeRow{DType::float8_e4m3fnuz, "float8_e4m3fnuz", 8, true},
    DTypeRow{DType::float8_e5m2, "float8_e5m2", 8, true},
    DTypeRow{DType::float8_e5m2fnuz, "float8_e5m2fnuz", 8, true},
    DTypeRow{DType::float8_e8m0fnu, "float8_e8m0fnu", 8, true},
    DTypeRow{DType::float6_e2m3fn, "float6_e2m3fn", 6, true},
    DTypeRow{DType::float6_e3m2fn, "float6_e3m2fn", 6, true},
    DTypeRow{DType::float4_e2m1fn, "float4_e2m1fn", 4, true},
    DTypeRow{DType::complex128, "complex128", 128, false},
    DTypeRow{DType::complex64, "complex64", 64, false},
    DTypeRow{DType::int64, "int64", 64, false},
    DTypeRow{DType::int32, "int32", 32, false},
    DTypeRow{DType::int16, "int16", 16, false},
    DTypeRow{DType::int8, "int8", 8, false},
    DTypeRow{DType::uint64, "uint64", 64, false},
    DTypeRow{DType::uint32, "uint32", 32, false},
    DTypeRow{DType::uint16, "uint16", 16, false},
    DTypeRow{DType::uint8, "uint8", 8, false},
    DTypeRow{DType::boolean, "bool", 8, false},
};

struct ShortName {
    std::string_view name;
    DType dtype;
};

constexpr std::array short_names{
    ShortName{"bf16", DType::bfloat16},  ShortName{"fp16", DType::float16},
    ShortName{"half", DType::float16},   ShortName{"fp32", DType::float32},
    ShortName{"float", DType::float32},  ShortName{"fp64", DType::float64},
    ShortName{"double", DType::float64},
};

const DTypeRow& row(DType dtype) {
    return rows[static_cast<std::size_t>(dtype)];
}

}  // namespace

std::string_view name(DType dtype) {
    return row(dtype).name;
}
int bits(DType dtype) {
    return row(dtype).bits;
}
bool is_floating_point(DType dtype) {
    return row(dtype).floating;
}

std::optional<DType> dtype_from_name(std::string_view name) {
    if (name.starts_with("torch.")) {
        name.remove_prefix(6);
    }
    if (const auto found = std::ranges::find(rows, name, &DTypeRow::name); found != rows.end()) {
        return found->dtype;
    }
    if (const auto found = std::ranges::find(short_names, name, &ShortName::name);
        found != short_names.end()) {
        return found->dtype;
    }
    return std::nullopt;
}

std::vector<std::string> dtype_names() {
    std::vector<std::string> out;
    for (const DTypeRow& r : rows) {
        out.emplace_back(r.name);
    }
    return out;
}

Bytes bytes_of(std::int64_t numel, DType dtype) {
    constexpr int bits_per_byte = 8;
    const int width = bits(dtype);
    return width % bits_per_byte == 0 ? Bytes{numel * (width / bits_per_byte)}
                                      : Bytes{ceil_div(numel * width, bits_per_byte)};
}

}  // namespace fsdplan
