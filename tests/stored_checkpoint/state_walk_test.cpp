#include "checkpoint/stored/state_walk.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdplan {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;

std::vector<std::string> names(const std::string& bytes) {
    const pickle::Document document("\x80\x02"s + bytes, "x", pickle::Content::calls);
    std::vector<std::string> out;
    for (const StateLeaf& leaf : walk_state(document).leaves) {
        out.push_back(leaf.name);
    }
    return out;
}

std::string text(const std::string& value) {
    return "X"s + static_cast<char>(value.size()) + "\0\0\0"s + value;
}

TEST(WalkState, NamesValuesAsDcpDoes) {
    // {1: 2, None: 3, "a": [1, 2], "b": [{"c": 5}, 6]}: a list without dicts or tensors is one value.
    EXPECT_THAT(
        names("}(K\1K\2NK\3" + text("a") + "](K\1K\2e" + text("b") + "](}(" + text("c") + "K\5uK\6eu."),
        ElementsAre("1", "None", "a", "b.0.c", "b.1"));
}

TEST(WalkState, LooksIntoAnOrderedDictAndCountsOtherObjects) {
    const std::string bytes = "}(" + text("m") + "ccollections\nOrderedDict\n)R" + text("w") + "K\7s" +
                              text("o") + "cmine\nThing\n)\x81}(" + text("w") + "K\1ubu.";
    EXPECT_THAT(names(bytes), ElementsAre("m.w", "o"));
    const pickle::Document document("\x80\x02"s + bytes, "x", pickle::Content::calls);
    EXPECT_THAT(walk_state(document).opaque, ElementsAre(testing::Pair("mine.Thing", 1)));
}

TEST(WalkState, GivesBackATensorWithItsStorage) {
    const std::string bytes = "}" + text("w") + "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") +
                              "ctorch\nBFloat16Storage\n" + text("7") + text("cpu") +
                              "K\6tQK\2K\2K\2\x86K\2K\1\x86\x89}tRs.";
    const pickle::Document document("\x80\x02"s + bytes, "x", pickle::Content::calls);
    const StateWalk walk = walk_state(document);
    ASSERT_EQ(walk.leaves.size(), 1U);
    ASSERT_TRUE(walk.leaves[0].tensor);
    const TorchTensor& tensor = *walk.leaves[0].tensor;
    EXPECT_EQ(tensor.dtype, DType::bfloat16);
    EXPECT_THAT(tensor.shape, ElementsAre(2, 2));
    const TorchPiece& piece = tensor.pieces.at(0);
    EXPECT_THAT(piece.stride, ElementsAre(2, 1));
    EXPECT_EQ(piece.storage_offset, 2);  // and reaches to element 2 + 1 * 2 + 1 * 1 + 1 = 6, the last one
    EXPECT_EQ(piece.storage.key, "7");
    EXPECT_EQ(piece.storage.bytes, 12);
}

}  // namespace
}  // namespace fsdplan
