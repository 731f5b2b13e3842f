#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fsdplan/model.hpp"

namespace fsdplan {

/// A tensor of a checkpoint file.
struct StoredTensor {
    std::string name;  ///< as the file has it: may be empty or hold any character
    Tensor tensor;
    std::int64_t begin = 0;  ///< of its data, counted from the end of the header
};

/// What the head of a .safetensors file says; the data are never read.
struct SafetensorsHeader {
    std::vector<StoredTensor> tensors;                          ///< in the order of the header
    std::vector<std::pair<std::string, std::string>> metadata;  ///< names and texts, as the file has them
    Bytes declared;                                             ///< data that the header speaks of
    Bytes present;                ///< data in the file: all of it, or none where only the header was kept
    std::int64_t data_begin = 0;  ///< byte of the file after the header
};

/// How safetensors calls a dtype, and how early its library writes tensors of it.
struct SafetensorsDType {
    std::string_view name;  ///< "BF16"; empty for what it cannot hold
    std::size_t place = 0;
};
SafetensorsDType safetensors_dtype(DType dtype);
/// The dtype that safetensors calls so.
std::optional<DType> dtype_of_safetensors(std::string_view name);

/// Reads 8 + n bytes of the file, whatever its size.
///
/// Throws Error(input) for what the safetensors library refuses (holes, overlaps, sizes that do not agree
/// with shape and dtype, data cut off, …) and for duplicate names, but not for a header without any data.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path, const std::string& shown);

}  // namespace fsdplan
