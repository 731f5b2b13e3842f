#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/pickle.hpp"
#include "fsdplan/stored_checkpoint.hpp"

// Tensors in the pickles of torch.save: what the calls that would rebuild them say.
namespace fsdplan {

/// A region of memory that tensors look at.
struct TorchStorage {
    std::string_view key;  ///< of the archive's member data/<key>
    std::int64_t bytes = 0;
};

/// A rank's piece of a tensor, or all of it.
struct TorchPiece {
    std::vector<std::int64_t> offset;  ///< in the whole tensor; empty where the pickle does not say
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> stride;
    std::int64_t storage_offset = 0;
    TorchStorage storage;
};

struct TorchTensor {
    DType dtype = DType::float32;
    std::vector<std::int64_t> shape;
    SavedAs saved_as = SavedAs::plain;
    std::vector<std::int64_t> mesh;
    std::vector<std::string> placements;
    int rank = -1;                   ///< that pickled it, where the value says so
    int ranks = 0;                   ///< among which it is spread; 0: not known
    std::vector<TorchPiece> pieces;  ///< none on the meta device or without rows on this rank
};

/// Nothing when this is no tensor. Throws Error(input) with the byte for one that cannot be.
std::optional<TorchTensor> torch_tensor(const pickle::Value& value);

/// What a persistent value of torch.save stands for.
TorchStorage torch_storage(const pickle::Value& persistent);

/// "FloatStorage": the class in torch of a dtype's typed storages; empty for the newer dtypes, which have
/// none.
std::string_view storage_class(DType dtype);

/// The dtype of "torch.float32"; fails for another name.
DType torch_dtype(const pickle::Value& name);

/// Fails for a tensor of more than 2^53 bits.
void check_tensor_size(std::span<const std::int64_t> shape, DType dtype, const pickle::Value& where);

/// A torch.Size, tuple or list of sizes; fails for more than 64, torch's limit of dimensions.
std::vector<std::int64_t> torch_sizes(const pickle::Value& value);

}  // namespace fsdplan
