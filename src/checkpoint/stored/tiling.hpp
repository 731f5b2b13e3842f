#pragma once

#include <optional>
#include <string>

#include "fsdplan/stored_checkpoint.hpp"

namespace fsdplan {

/// Why the chunks are not the tensor cut in pieces (one reaches outside, two overlap, something is missing),
/// or nothing. Chunks of no elements are no matter. Time is that of sorting corners: chunks * 2^k, where k
/// dimensions are cut; more than 10 are a fault.
std::optional<std::string> tiling_fault(const SavedTensor& tensor);

/// "[2, 3]"
std::string shown_sizes(std::span<const std::int64_t> sizes);

}  // namespace fsdplan
