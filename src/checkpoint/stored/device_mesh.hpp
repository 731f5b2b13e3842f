#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/pickle.hpp"

// How a pickled DTensor is spread: torch.distributed.device_mesh and placement_types.
namespace fsdplan {

constexpr std::int64_t most_saved_ranks = 1 << 24;  // that a file may speak of

struct DeviceMesh {
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> coordinate;  ///< of the rank that pickled it; empty: not in the pickle
    int rank = -1;                         ///< that rank, where known
    int ranks = 0;
};

struct Placements {
    std::vector<std::string> names;       ///< "Shard(0)", "Replicate()", one a dimension of the mesh
    std::vector<std::int64_t> shard_dim;  ///< which dimension of the tensor it cuts; -1: none
    bool plain_order = true;              ///< false: cut in another order than the mesh's dimensions
};

/// The part of a tensor that one rank of a mesh holds.
struct MeshBox {
    std::vector<std::int64_t> offset;
    std::vector<std::int64_t> shape;
};

// Both throw Error(input) with the byte for what cannot be.
DeviceMesh device_mesh(const pickle::Value& mesh);
Placements read_placements(const pickle::Value& placements);

/// The box of the pickling rank; nothing when the pickle does not say where that rank is or the order of cuts
/// is not plain. Each cut is in pieces of ceil(size / ranks), the last ones short or empty.
std::optional<MeshBox> box_on_mesh(const std::vector<std::int64_t>& shape, const DeviceMesh& mesh,
                                   const Placements& placements, const pickle::Value& where);

}  // namespace fsdplan
