#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "fsdplan/model.hpp"

namespace fsdplan {

/// A tensor of a checkpoint file.
struct StoredTensor {
    std::string name;  ///< as the file has it: may be empty or hold any character
    Tensor tensor;
};

/// What the head of a .safetensors file says; the data are never read.
struct SafetensorsHeader {
    std::vector<StoredTensor> tensors;  ///< in the order of the header
    Bytes declared;                     ///< data that the header speaks of
    Bytes present;                      ///< data in the file: less when it was cut off or the data removed
};

/// Reads 8 + n bytes of the file, whatever its size.
///
/// Throws Error(input) for what the safetensors library refuses (holes, overlaps, sizes that do not agree
/// with shape and dtype, …) and for duplicate names, but not for missing data.
SafetensorsHeader read_safetensors_header(const std::filesystem::path& path, const std::string& shown);

}  // namespace fsdplan
