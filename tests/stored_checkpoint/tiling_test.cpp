#include "checkpoint/stored/tiling.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace fsdplan {
namespace {

using Sizes = std::vector<std::int64_t>;

SavedTensor tensor(Sizes shape, const std::vector<std::pair<Sizes, Sizes>>& chunks) {
    SavedTensor out;
    out.shape = std::move(shape);
    for (const auto& [offset, size] : chunks) {
        out.chunks.emplace_back();
        out.chunks.back().offset = offset;
        out.chunks.back().shape = size;
    }
    return out;
}

std::string fault(Sizes shape, const std::vector<std::pair<Sizes, Sizes>>& chunks) {
    return tiling_fault(tensor(std::move(shape), chunks)).value_or("none");
}

TEST(Tiling, RowsColumnsAndBricksAreFine) {
    EXPECT_EQ(fault({4, 2}, {{{0, 0}, {3, 2}}, {{3, 0}, {1, 2}}}), "none");
    EXPECT_EQ(fault({4, 2}, {{{0, 1}, {4, 1}}, {{0, 0}, {4, 1}}}), "none");
    // Four bricks around a hole, and what fills it: no cut goes through from side to side.
    EXPECT_EQ(
        fault({3, 3},
              {{{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}}),
        "none");
    EXPECT_EQ(fault({}, {{{}, {}}}), "none");
}

TEST(Tiling, ChunksWithoutElementsAreNoMatter) {
    // 3 rows on 4 ranks: the last rank has none.
    EXPECT_EQ(fault({3}, {{{0}, {1}}, {{1}, {1}}, {{2}, {1}}, {{3}, {0}}}), "none");
    EXPECT_EQ(fault({0, 4}, {{{0, 0}, {0, 4}}}), "none");
    EXPECT_EQ(fault({0, 4}, {}), "none");
}

TEST(Tiling, HolesAndOverlapsAreFoundWhereTheyBegin) {
    EXPECT_EQ(fault({4}, {{{0}, {2}}, {{3}, {1}}}), "no chunk is there at [2]");
    EXPECT_EQ(fault({4}, {{{0}, {3}}, {{2}, {2}}}), "chunks overlap at [2]");
    EXPECT_EQ(fault({4}, {{{0}, {4}}, {{0}, {4}}}), "chunks overlap at [0]");
    EXPECT_EQ(fault({}, {}), "no chunk is there at []");
    EXPECT_EQ(fault({}, {{{}, {}}, {{}, {}}}), "chunks overlap at []");
    // As many elements as the whole has, but one is twice and one not there.
    EXPECT_EQ(fault({2, 2}, {{{0, 0}, {2, 1}}, {{0, 0}, {1, 2}}}), "chunks overlap at [0, 0]");
}

TEST(Tiling, ChunksOutsideAreFound) {
    EXPECT_EQ(fault({4}, {{{3}, {2}}}), "a chunk of [2] at [3] does not lie within [4]");
    EXPECT_EQ(fault({4}, {{{0, 0}, {4, 1}}}), "a chunk of [4, 1] at [0, 0] does not lie within [4]");
    EXPECT_EQ(fault({4}, {{{std::int64_t{1} << 62U}, {std::int64_t{1} << 62U}}}),
              "a chunk of [4611686018427387904] at [4611686018427387904] does not lie within [4]");
}

/// Cuts a box in two at random until there are `count`.
std::vector<std::pair<Sizes, Sizes>> random_boxes(const Sizes& shape, std::size_t count,
                                                  std::mt19937& random) {
    std::vector<std::pair<Sizes, Sizes>> boxes{{Sizes(shape.size(), 0), shape}};
    while (boxes.size() < count) {
        auto& [offset, size] = boxes[random() % boxes.size()];
        const std::size_t d = random() % shape.size();
        if (size[d] > 1) {
            const auto first = static_cast<std::int64_t>(random() % static_cast<unsigned>(size[d] - 1)) + 1;
            auto rest = std::pair(offset, size);
            rest.first[d] += first;
            rest.second[d] -= first;
            size[d] = first;
            boxes.push_back(std::move(rest));
        }
    }
    return boxes;
}

TEST(Tiling, RandomCutsAreFineUntilOneBoxMoves) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        SCOPED_TRACE(seed);
        auto boxes = random_boxes({8, 5, 6}, 1 + random() % 20, random);
        EXPECT_EQ(fault({8, 5, 6}, boxes), "none");
        if (boxes.size() > 1) {
            boxes[random() % boxes.size()] = boxes[random() % boxes.size()];
            SavedTensor moved = tensor({8, 5, 6}, boxes);
            std::vector<int> covered(8UL * 5 * 6, 0);  // the obvious way: count every element
            for (const SavedChunk& c : moved.chunks) {
                for (std::int64_t i = c.offset[0]; i < c.offset[0] + c.shape[0]; ++i) {
                    for (std::int64_t j = c.offset[1]; j < c.offset[1] + c.shape[1]; ++j) {
                        for (std::int64_t k = c.offset[2]; k < c.offset[2] + c.shape[2]; ++k) {
                            ++covered[static_cast<std::size_t>((i * 5 + j) * 6 + k)];
                        }
                    }
                }
            }
            const bool is_tiled = std::ranges::all_of(covered, [](int times) { return times == 1; });
            EXPECT_EQ(!tiling_fault(moved).has_value(), is_tiled);
        }
    }
}

}  // namespace
}  // namespace fsdplan
