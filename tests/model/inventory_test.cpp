#include "model/inventory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/json.hpp"
#include "support/checkpoint.hpp"
#include "support/temp_folder.hpp"

namespace fsdplan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Inventory inventory_of(const ModelGraph& graph) {
    return inventory_of(graph, flatten(graph));
}

const ClassTotals& totals(const Inventory& inventory, std::string_view name) {
    for (const ClassTotals& c : inventory.classes) {
        if (short_name(c.name) == name) {
            return c;
        }
    }
    throw std::runtime_error("no class " + std::string(name));
}

TEST(Inventory, CountsParametersByClass) {
    const Inventory inventory = inventory_of(import_model("llama3-8b"));
    EXPECT_EQ(inventory.parameters.tensors, 291);
    EXPECT_EQ(inventory.parameters.numel, 8'030'261'248);
    EXPECT_EQ(inventory.parameters.bytes, Bytes{16'060'522'496});
    EXPECT_EQ(inventory.trainable_numel, 8'030'261'248);
    EXPECT_EQ(totals(inventory, "Linear").instances, 225);
    EXPECT_EQ(totals(inventory, "Embedding").own_numel, 128'256 * 4096);
    EXPECT_EQ(inventory.depth, 5);  // model.layers.0.self_attn.q_proj
    EXPECT_EQ(inventory.buffers.numel, 128);
    EXPECT_EQ(inventory.non_persistent, Bytes{512});
}

TEST(Inventory, FindsRepeatedBlocks) {
    const Inventory inventory = inventory_of(import_model("llama3-8b"));
    ASSERT_EQ(inventory.blocks.size(), 1U);
    EXPECT_EQ(inventory.blocks[0].path, "model.layers.0-31");
    EXPECT_EQ(inventory.blocks[0].count, 32);
    EXPECT_EQ(inventory.blocks[0].numel, 218'112'000);
}

TEST(Inventory, CountsBlocksInsideBlocks) {
    const test::TempFolder folder;
    std::vector<test::CheckpointTensor> tensors;
    for (const char* layer : {"layers.0", "layers.1", "layers.2"}) {
        for (const char* expert : {".experts.0.w", ".experts.1.w"}) {
            tensors.push_back({std::string(layer) + expert, "BF16", {3}, 2});
        }
    }
    tensors.push_back({"layers.2.extra", "BF16", {1}, 2});  // this layer is not like the others
    const Inventory inventory =
        inventory_of(import_model(folder.write("x.safetensors", test::safetensors_header(tensors)).string()));
    ASSERT_EQ(inventory.blocks.size(), 3U);
    EXPECT_EQ(inventory.blocks[0].path, "layers.0-1");
    EXPECT_EQ(inventory.blocks[0].numel, 6);
    EXPECT_EQ(inventory.blocks[1].path, "layers.0-1.experts.0-1");
    EXPECT_EQ(inventory.blocks[1].count, 4);
    EXPECT_EQ(inventory.blocks[2].path, "layers.2.experts.0-1");
    EXPECT_THAT(inventory_text(inventory), HasSubstr("class (guessed)"));
}

TEST(Inventory, ATiedWeightCountsOnce) {
    const ModelGraph graph = import_model(FSDPLAN_TEST_DATA "/model/data/peft/llama-tied-head/base.json");
    const Inventory inventory = inventory_of(graph);
    ASSERT_EQ(inventory.tied.size(), 1U);
    EXPECT_THAT(inventory.tied[0], ElementsAre("model.embed_tokens.weight", "lm_head.weight"));
    // 32 x 16 embedding; in each of two layers q, o 16 x 16, k, v 8 x 16, three of 16 x 24, two norms; one
    // norm.
    EXPECT_EQ(inventory.parameters.numel, 32 * 16 + 2 * (2 * 256 + 2 * 128 + 3 * 384 + 2 * 16) + 16);
}

TEST(Inventory, NamesSharedModulesAndFrozenParameters) {
    const ModelGraph base = import_model(FSDPLAN_TEST_DATA "/model/data/peft/toy/base.json");
    const std::vector<std::string> globs{"first"};
    const Inventory inventory = inventory_of(with_frozen(base, globs));
    ASSERT_EQ(inventory.shared_modules.size(), 1U);
    EXPECT_THAT(inventory.shared_modules[0], ElementsAre("first.0", "second.proj"));
    EXPECT_EQ(inventory.frozen.numel, 6 * 4 + 6);
    EXPECT_EQ(inventory.parameters.numel - inventory.trainable_numel, 6 * 4 + 6);
    ASSERT_EQ(inventory.by_dtype.size(), 2U);
    EXPECT_EQ(inventory.by_dtype[0].dtype, DType::float64);  // 30 of 8 bytes against 24 of 4
}

TEST(Inventory, MarksNoSplitClassesThatAreAbsent) {
    ModelGraph graph = import_model("llama3-8b");
    graph.no_split_classes.emplace_back("CLIPEncoderLayer");
    const Inventory inventory = inventory_of(graph);
    EXPECT_EQ(inventory.no_split[0].instances, 32);
    EXPECT_EQ(inventory.no_split[1].instances, 0);
    EXPECT_THAT(inventory_text(inventory), HasSubstr("CLIPEncoderLayer: absent from this model"));
}

TEST(InventoryText, TellsClassesOfOneNameApart) {
    const ModelGraph graph = with_lora(import_model("llama3-8b"), parse_lora("r=8,targets=q_proj"));
    const std::string text = inventory_text(inventory_of(graph));
    EXPECT_THAT(text, HasSubstr("\nlayer.Linear "));
    EXPECT_THAT(text, HasSubstr("\nlinear.Linear "));
    EXPECT_THAT(text, Not(HasSubstr("sparse.Embedding")));
}

TEST(InventoryJson, HasTheKeysThatScriptsRelyOn) {
    const json::Document document(inventory_json(inventory_of(import_model("llama3-8b"))), "inspect");
    const json::Value parameters = document.root().at("parameters");
    EXPECT_EQ(parameters.at("numel").integer(), 8'030'261'248);
    EXPECT_EQ(parameters.at("trainable_numel").integer(), 8'030'261'248);
    EXPECT_EQ(parameters.at("bytes").integer(), 16'060'522'496);
}

TEST(TreeText, FoldsEqualSiblingsAndNamesSharedOnes) {
    const std::string llama = tree_text(flatten(import_model("llama3-8b")));
    EXPECT_THAT(llama, HasSubstr("  218,112,000        0-31 LlamaDecoderLayer (32 times)\n"));
    EXPECT_THAT(llama, HasSubstr("    4,194,304            k_proj Linear weight[1024, 4096]\n"));
    const std::string toy =
        tree_text(flatten(import_model(FSDPLAN_TEST_DATA "/model/data/peft/toy/base.json")));
    EXPECT_THAT(toy, HasSubstr("    proj = first.0\n"));
}

}  // namespace
}  // namespace fsdplan
