#include <gtest/gtest.h>

#include "fsdplan/wrap.hpp"
#include "support/random_tree.hpp"

namespace fsdplan {
namespace {

/// A parameter of 50 in "a" with a child "a.b" of 100, under the root.
ModuleTree chain() {
    GraphBuilder builder("chain", "hand");
    const ModuleClass plain{"toy.Block", {"torch.nn.modules.module.Module"}};
    const Scope middle = builder.root(plain).child("a", plain);
    middle.parameter("w", {50});
    middle.child("b", plain).parameter("w", {100});
    return flatten(builder.finish());
}

std::string answer(const std::string& policy, const std::string& path, const WrapOptions& options = {}) {
    const ModuleTree tree = chain();
    return why(tree, parse_policy(std::span(&policy, 1), tree), options, *tree.find(path));
}

TEST(Why, GivesTheNumbersThatDecided) {
    EXPECT_EQ(
        answer("size:60", "a"),
        "is no unit: 50 of its 150 elements were left after the units inside it, and the policy said no");
    EXPECT_EQ(
        answer("size:120", "a"),
        "is a unit: 150 of its 150 elements were left after the units inside it, and the policy said yes");
    EXPECT_EQ(answer("size:120", "a.b"),
              "is no unit: the policy did not enter it with its 100 elements, and what is not entered is not "
              "wrapped");
    EXPECT_EQ(answer("size:200", "a.b"),
              "is no unit: a module above it was not entered, so that nobody asked");
}

// Mixed precision puts a policy of its own in front that enters everything.
TEST(Why, MixedPrecisionEntersWithoutThePolicy) {
    WrapOptions options;
    options.mixed_precision = true;
    EXPECT_EQ(
        answer("size:200", "a.b", options),
        "is no unit: 100 of its 100 elements were left after the units inside it, and the policy said no");
}

TEST(Why, KnowsTheOtherWaysToChoose) {
    EXPECT_EQ(answer("class:Block", "a"), "is a unit: its class or a base of it is named");
    EXPECT_EQ(answer("none", "a"), "is no unit: there is no policy, so that the root is the only unit");
    EXPECT_EQ(answer("none", ""), "is a unit: the root is one whatever the policy says");
}

}  // namespace
}  // namespace fsdplan
