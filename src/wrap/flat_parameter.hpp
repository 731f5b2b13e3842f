#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fsdplan/model.hpp"

namespace fsdplan {

/// How FSDP1 lays the parameters of a unit into one flat parameter.
struct FlatLayout {
    std::vector<std::int64_t> offsets;  ///< of each parameter, in elements
    std::int64_t numel = 0;             ///< with alignment gaps and divisibility padding
};

/// `use_orig_params`: every parameter starts at a multiple of 16 bytes of `compute_dtype`, and the total is a
/// multiple of `world_size`. Otherwise the plain sum.
/// Source: FlatParamHandle._init_flat_param_and_metadata of PyTorch 2.13.
FlatLayout flat_layout(std::span<const std::int64_t> numels, bool use_orig_params, DType compute_dtype,
                       int world_size);

/// Elements of [offset, offset + numel) that lie in rank's piece [rank * shard, (rank + 1) * shard).
std::int64_t local_numel(std::int64_t offset, std::int64_t numel, std::int64_t shard_numel,
                         std::int64_t rank);

}  // namespace fsdplan
