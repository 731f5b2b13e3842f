#include "wrap/flat_parameter.hpp"

#include <algorithm>

namespace fsdplan {

FlatLayout flat_layout(std::span<const std::int64_t> numels, bool use_orig_params, DType compute_dtype,
                       int world_size) {
    constexpr std::int64_t alignment_bits = 128;  // 16 bytes
    const std::int64_t aligned =
        use_orig_params ? std::max<std::int64_t>(1, alignment_bits / bits(compute_dtype)) : 1;
    FlatLayout layout;
    layout.offsets.reserve(numels.size());
    for (const std::int64_t numel : numels) {
        layout.numel = round_up(layout.numel, aligned);
        layout.offsets.push_back(layout.numel);
        layout.numel += numel;
    }
    if (use_orig_params) {
        layout.numel = round_up(layout.numel, world_size);
    }
    return layout;
}

std::int64_t local_numel(std::int64_t offset, std::int64_t numel, std::int64_t shard_numel,
                         std::int64_t rank) {
    const std::int64_t begin = std::max(offset, rank * shard_numel);
    const std::int64_t end = std::min(offset + numel, (rank + 1) * shard_numel);
    return std::max<std::int64_t>(0, end - begin);
}

}  // namespace fsdplan
