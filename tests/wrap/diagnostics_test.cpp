#include <gtest/gtest.h>

#include "fsdplan/wrap.hpp"
#include "support/model_in_code.hpp"

namespace fsdplan {
namespace {

const Diagnostic* about_tie(const WrapPlan& plan) {
    for (const Diagnostic& d : plan.diagnostics) {
        if (d.rule == WrapRule::tied_across_units) {
            return &d;
        }
    }
    return nullptr;
}

/// A unit "table" with a weight of `rows` x `columns` that the root's layer `class_name` uses too.
WrapPlan tied(std::int64_t rows, std::int64_t columns, const std::string& class_name, bool bias, int ranks) {
    test::ModelInCode model("toys.Tied");
    const ModuleIndex table = model.child(model.root(), "table", "torch.nn.modules.sparse.Embedding",
                                          {{"weight", {rows, columns}}});
    std::vector<test::Weight> own;
    if (bias) {
        own.push_back({"bias", {rows}});
    }
    const ModuleIndex head = model.child(model.root(), "head", class_name, own);
    auto& slots = model.graph().modules[at(head)].parameters;
    slots.insert(slots.begin(), {"weight", model.graph().modules[at(table)].parameters[0].tensor});
    PolicySpec by_hand;
    by_hand.kind = PolicySpec::Kind::manual;
    by_hand.calls = {{.modules = {"table"}}};
    return wrap(flatten(model.graph()), by_hand, {.use_orig_params = true, .world_size = ranks});
}

// A shard of an 8 x 16 weight on 8 ranks is one row of 16, which torch multiplies with as with a vector.
TEST(TiedAcrossUnits, OneRowPassesForTheWeightOfALinearLayer) {
    const WrapPlan plan = tied(8, 16, test::linear, false, 8);
    const Diagnostic* tie = about_tie(plan);
    ASSERT_NE(tie, nullptr);
    EXPECT_EQ(tie->severity, Severity::warning);
    EXPECT_EQ(tie->error_type, "");
}

TEST(TiedAcrossUnits, AnyOtherShardFailsInForward) {
    struct Case {
        std::int64_t rows;
        int ranks;
        std::string class_name;
        bool bias;
    };
    const std::vector<Case> cases{
        {16, 8, test::linear, false},                         // two rows
        {8, 4, test::linear, false},                          // two rows
        {8, 8, test::linear, true},                           // a vector cannot take a bias
        {8, 8, "torch.nn.modules.sparse.Embedding", false}};  // looks rows up in a matrix
    for (const Case& c : cases) {
        const WrapPlan plan = tied(c.rows, 16, c.class_name, c.bias, c.ranks);
        const Diagnostic* tie = about_tie(plan);
        ASSERT_NE(tie, nullptr) << c.rows << " rows on " << c.ranks;
        EXPECT_EQ(tie->severity, Severity::forward_error) << c.rows << " rows on " << c.ranks;
        EXPECT_EQ(tie->error_type, "RuntimeError");
    }
}

TEST(ErrorText, NamesAParameterAsItsUnitDoes) {
    test::ModelInCode model("toys.Root");
    const ModuleIndex block = model.child(model.root(), "block", "toys.Block");
    model.child(block, "scale", "toys.Scale", {{"s", {}}});
    const ModuleTree tree = flatten(model.graph());
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::manual;
    spec.calls = {{.modules = {"block"}}};
    const WrapPlan fsdp1 = wrap_fsdp1(tree, spec, {.world_size = 8});
    ASSERT_NE(fsdp1.construction_error(), nullptr);
    EXPECT_EQ(fsdp1.construction_error()->error_text,
              "FSDP doesn't support scalar parameters. Change scale.s to a 1D tensor with numel equal to 1.");
    const WrapPlan fsdp2 = wrap_fsdp2(tree, spec, {.world_size = 8});
    ASSERT_NE(fsdp2.construction_error(), nullptr);
    EXPECT_EQ(
        fsdp2.construction_error()->error_text,
        "fully_shard doesn't support scalar parameters. Change s to a 1D tensor with numel equal to 1.");
}

TEST(ByPolicy, TellsAPolicysUnitsFromThoseWrappedByHand) {
    const ModuleTree tree = flatten(test::chain(2, 8).graph());
    PolicySpec spec;
    EXPECT_FALSE(wrap_fsdp1(tree, spec, {}).by_policy);
    spec.kind = PolicySpec::Kind::module_classes;
    spec.classes = {"Block"};
    EXPECT_TRUE(wrap_fsdp1(tree, spec, {}).by_policy);
    spec = {};
    spec.kind = PolicySpec::Kind::manual;
    spec.calls = {{.modules = {"layers.0"}}};
    EXPECT_FALSE(wrap_fsdp1(tree, spec, {}).by_policy);
}

}  // namespace
}  // namespace fsdplan
