#include "checkpoint/stored/tiling.hpp"

#include <algorithm>
#include <vector>

namespace fsdplan {
namespace {

constexpr std::size_t most_cuts = 10;

bool lies_within(const SavedChunk& chunk, std::span<const std::int64_t> shape) {
    if (chunk.offset.size() != shape.size() || chunk.shape.size() != shape.size()) {
        return false;
    }
    for (std::size_t d = 0; d < shape.size(); ++d) {
        if (chunk.offset[d] > shape[d] || chunk.shape[d] > shape[d] - chunk.offset[d]) {
            return false;
        }
    }
    return true;
}

/// A corner of a box, as its place in a grid of the cut dimensions, and its sign: plus where an even number
/// of coordinates are upper ends. Boxes add up to the whole exactly where their signed corners do: the
/// indicator of a box is the sum of its corners along every dimension.
struct Corner {
    std::uint64_t place = 0;
    int sign = 0;
};

class Corners {
public:
    Corners(std::span<const std::int64_t> shape, std::vector<std::size_t> cut)
        : shape_(shape), cut_(std::move(cut)) {}

    void add(std::span<const std::int64_t> offset, std::span<const std::int64_t> size, int sign) {
        for (std::size_t upper = 0; upper < std::size_t{1} << cut_.size(); ++upper) {
            Corner corner{.place = 0, .sign = sign};
            for (std::size_t i = 0; i < cut_.size(); ++i) {
                const std::size_t d = cut_[i];
                const bool is_upper = (upper >> i & 1U) != 0;
                // At most 2^53 elements and 10 cuts: below 2^63.
                corner.place = corner.place * static_cast<std::uint64_t>(shape_[d] + 1) +
                               static_cast<std::uint64_t>(offset[d] + (is_upper ? size[d] : 0));
                corner.sign = is_upper ? -corner.sign : corner.sign;
            }
            corners_.push_back(corner);
        }
    }

    /// The first corner, in the order of rows, at which the sum is not nothing.
    std::optional<Corner> first_uneven() {
        std::ranges::sort(corners_, {}, &Corner::place);
        for (std::size_t i = 0; i < corners_.size();) {
            Corner sum{.place = corners_[i].place, .sign = 0};
            for (; i < corners_.size() && corners_[i].place == sum.place; ++i) {
                sum.sign += corners_[i].sign;
            }
            if (sum.sign != 0) {
                return sum;
            }
        }
        return std::nullopt;
    }

    std::vector<std::int64_t> coordinates(Corner corner) const {
        std::vector<std::int64_t> out(shape_.size(), 0);
        for (std::size_t i = cut_.size(); i > 0; --i) {
            const std::size_t d = cut_[i - 1];
            const auto steps = static_cast<std::uint64_t>(shape_[d] + 1);
            out[d] = static_cast<std::int64_t>(corner.place % steps);
            corner.place /= steps;
        }
        return out;
    }

private:
    std::span<const std::int64_t> shape_;
    std::vector<std::size_t> cut_;
    std::vector<Corner> corners_;
};

/// The dimensions along which a chunk is less than the whole.
std::vector<std::size_t> cut_dimensions(const SavedTensor& tensor,
                                        std::span<const SavedChunk* const> chunks) {
    std::vector<std::size_t> cut;
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
        if (std::ranges::any_of(chunks,
                                [&](const SavedChunk* c) { return c->shape[d] != tensor.shape[d]; })) {
            cut.push_back(d);
        }
    }
    return cut;
}

}  // namespace

std::string shown_sizes(std::span<const std::int64_t> sizes) {
    std::string out = "[";
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        out += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
    }
    return out + "]";
}

std::optional<std::string> tiling_fault(const SavedTensor& tensor) {
    std::vector<const SavedChunk*> chunks;
    for (const SavedChunk& chunk : tensor.chunks) {
        if (!lies_within(chunk, tensor.shape)) {
            return "a chunk of " + shown_sizes(chunk.shape) + " at " + shown_sizes(chunk.offset) +
                   " does not lie within " + shown_sizes(tensor.shape);
        }
        if (chunk.numel() > 0) {
            chunks.push_back(&chunk);
        }
    }
    if (tensor.numel() == 0) {
        return std::nullopt;
    }
    const std::vector<std::size_t> cut = cut_dimensions(tensor, chunks);
    if (cut.size() > most_cuts) {
        return "is cut along " + std::to_string(cut.size()) + " dimensions; expected at most " +
               std::to_string(most_cuts);
    }
    Corners corners(tensor.shape, cut);
    for (const SavedChunk* chunk : chunks) {
        corners.add(chunk->offset, chunk->shape, 1);
    }
    corners.add(std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape, -1);
    if (const std::optional<Corner> uneven = corners.first_uneven()) {
        return std::string(uneven->sign > 0 ? "chunks overlap at " : "no chunk is there at ") +
               shown_sizes(corners.coordinates(*uneven));
    }
    return std::nullopt;
}

}  // namespace fsdplan
