#include <gtest/gtest.h>

#include "fsdplan/wrap.hpp"
#include "support/random_tree.hpp"

namespace fsdplan {
namespace {

ModuleTree small_tree() {
    GraphBuilder builder("small", "hand");
    const Scope root = builder.root({"toy.Model", {"torch.nn.modules.module.Module"}});
    const Scope layers = module_list(root, "layers");
    for (int i = 0; i < 3; ++i) {
        const Scope block =
            layers.child(std::to_string(i), {"toy.DecoderLayer", {"torch.nn.modules.module.Module"}});
        linear(block, "up", 4, 8, true);
        linear(block, "down", 8, 4, true);
    }
    linear(root, "head", 4, 10, false);
    return flatten(builder.finish());
}

std::string fault_of(std::vector<std::string> texts) {
    try {
        parse_policy(texts, small_tree());
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

std::size_t units_of(std::vector<std::string> texts) {
    const ModuleTree tree = small_tree();
    return wrap(tree, parse_policy(texts, tree), {}).units.size();
}

TEST(ParsePolicy, EveryFormOfTheCommandLineMakesItsUnits) {
    EXPECT_EQ(units_of({"none"}), 1U);
    EXPECT_EQ(units_of({"size:76"}), 4U);     // a layer has 4*8+8 + 8*4+4 = 76
    EXPECT_EQ(units_of({"size:0.04k"}), 5U);  // 40: up of each layer, and the head
    EXPECT_EQ(units_of({"transformer:DecoderLayer"}), 4U);
    EXPECT_EQ(units_of({"class:toy.DecoderLayer,Linear"}), 11U);
    EXPECT_EQ(units_of({"blocks"}), 4U);
    EXPECT_EQ(units_of({"names:layers.*.up", "names:head"}), 5U);
    EXPECT_EQ(units_of({"always"}), 12U);
}

TEST(ParsePolicy, AnUnknownPolicyNamesTheNearestOne) {
    EXPECT_EQ(fault_of({"sise:100M"}), "--policy: unknown policy \"sise\"; did you mean \"size\"?");
}

TEST(ParsePolicy, AClassThatMatchesNothingGetsNearNamesWithCounts) {
    EXPECT_EQ(fault_of({"class:decoderlayer"}),
              "--policy: no module of this model is a decoderlayer; did you mean DecoderLayer (3 of them)?");
}

TEST(ParsePolicy, NumbersMustBeNumbers) {
    EXPECT_NE(fault_of({"size:lots"}), "accepted");
    EXPECT_NE(fault_of({"size:-1"}), "accepted");
    EXPECT_NE(fault_of({"size:nan"}), "accepted");
}

TEST(ParsePolicy, PoliciesThatStandAloneRefuseCompany) {
    EXPECT_NE(fault_of({"blocks", "always"}), "accepted");
}

}  // namespace
}  // namespace fsdplan
