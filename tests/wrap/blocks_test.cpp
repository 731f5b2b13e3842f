#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdplan/wrap.hpp"
#include "support/model_in_code.hpp"

namespace fsdplan {
namespace {

const std::string module_list = "torch.nn.modules.container.ModuleList";

// T5's block holds nothing but a list of its layers; it was once taken for a plain wrapper.
TEST(BlockClasses, ABlockMayKeepItsLayersInOneList) {
    test::ModelInCode model("toys.Model");
    const ModuleIndex blocks = model.child(model.root(), "block", module_list);
    for (const char* i : {"0", "1"}) {
        const ModuleIndex block = model.child(blocks, i, "toys.Block");
        const ModuleIndex layers = model.child(block, "layer", module_list);
        model.child(layers, "0", "toys.Attention", {{"weight", {4, 4}}});
        model.child(layers, "1", "toys.FeedForward", {{"weight", {4, 4}}});
    }
    EXPECT_THAT(block_classes(flatten(model.graph())), testing::ElementsAre("toys.Block"));
}

TEST(BlockClasses, AListOfPlainLayersHasNone) {
    test::ModelInCode model("toys.Model");
    const ModuleIndex list = model.child(model.root(), "layers", module_list);
    model.child(list, "0", test::linear, {{"weight", {4, 4}}});
    model.child(list, "1", test::linear, {{"weight", {4, 4}}});
    EXPECT_TRUE(block_classes(flatten(model.graph())).empty());
}

}  // namespace
}  // namespace fsdplan
