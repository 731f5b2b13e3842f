#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/stored/optimizer_keys.hpp"
#include "checkpoint/stored/rank_name.hpp"
#include "fsdplan/stored_checkpoint.hpp"
#include "support/temp_folder.hpp"

// Real checkpoints of tests/golden/state_dict, whole and with parts taken away. What is in each is compared
// by `fsdplan verify`.
namespace fsdplan {
namespace {

using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

const std::filesystem::path golden = FSDPLAN_TEST_DATA "/golden/state_dict/files";

std::filesystem::path copied(const std::string& item, const TempFolder& folder) {
    std::filesystem::path copy = folder.path() / item;
    std::filesystem::copy(golden / item, copy, std::filesystem::copy_options::recursive);
    return copy;
}

std::vector<std::string> faults(const StoredCheckpoint& checkpoint) {
    std::vector<std::string> out;
    for (const CheckpointFinding& finding : checkpoint.findings) {
        out.push_back(finding.where + ": " + finding.message);
    }
    return out;
}

const SavedTensor& named(const StoredCheckpoint& checkpoint, const std::string& name) {
    return *std::ranges::find(checkpoint.tensors, name, &SavedTensor::name);
}

TEST(ReadCheckpoint, SaysWhoWroteAndWhereOfDcp) {
    const StoredCheckpoint c = read_checkpoint((golden / "dcp_fsdp2_w2").string());
    EXPECT_EQ(c.format, CheckpointFormat::dcp);
    EXPECT_EQ(c.ranks, 2);
    EXPECT_EQ(c.optimizer, OptimizerKeys::by_name);
    EXPECT_EQ(c.model().numel, 1834);
    EXPECT_EQ(c.optimizer_state().tensors, 51);  // three of each of 17 parameters: two moments and the step
    EXPECT_EQ(c.stored(), c.model().bytes + c.optimizer_state().bytes);
    EXPECT_TRUE(c.is_complete());
    const SavedChunk& second = named(c, "model.embed.weight").chunks[1];
    EXPECT_THAT(second.offset, ElementsAre(19, 0));
    EXPECT_EQ(c.files[second.file].name, "__1_0.distcp");
    EXPECT_EQ(c.files[second.file].rank, 1);
}

TEST(ReadCheckpoint, FindsMissingCutAndForeignFilesOfDcp) {
    const TempFolder folder;
    const std::filesystem::path copy = copied("dcp_fsdp2_w2", folder);
    std::filesystem::remove(copy / "__0_0.distcp");
    std::filesystem::resize_file(copy / "__1_0.distcp", 100000);
    folder.write("dcp_fsdp2_w2/__2_0.distcp", "");  // of a rank with nothing to write
    folder.write("dcp_fsdp2_w2/__3_0.distcp", "of another save");
    const StoredCheckpoint c = read_checkpoint(copy.string());
    EXPECT_THAT(faults(c),
                ElementsAre("__0_0.distcp: is not there; it should hold 51 items",
                            "__1_0.distcp: has 100000 bytes, but its items end at 133929; is it cut off?",
                            "__3_0.distcp: is not of this checkpoint"));
    EXPECT_FALSE(c.is_complete());
    EXPECT_EQ(c.ranks, 3);
}

TEST(ReadCheckpoint, JoinsTheFilesOfRanks) {
    const StoredCheckpoint c = read_checkpoint((golden / "torch_fsdp2_dtensor_rank").string());
    EXPECT_EQ(c.format, CheckpointFormat::torch_save_ranks);
    EXPECT_EQ(c.ranks, 2);
    const SavedTensor& gain = named(c, "model.gain");
    EXPECT_EQ(gain.saved_as, SavedAs::dtensor);
    EXPECT_THAT(gain.shape, ElementsAre(3));
    EXPECT_THAT(gain.mesh, ElementsAre(2));
    EXPECT_THAT(gain.placements, ElementsAre("Shard(0)"));
    ASSERT_EQ(gain.chunks.size(), 2U);
    EXPECT_THAT(gain.chunks[1].offset, ElementsAre(2));
    EXPECT_THAT(gain.chunks[1].shape, ElementsAre(1));
    EXPECT_EQ(named(c, "model.scale").saved_as, SavedAs::plain);
    EXPECT_EQ(c.model().numel, 1834);
}

TEST(ReadCheckpoint, FindsTheRankWithoutAFile) {
    const TempFolder folder;
    const std::filesystem::path copy = copied("torch_fsdp2_dtensor_rank", folder);
    std::filesystem::remove(copy / "rank0.pt");
    const StoredCheckpoint c = read_checkpoint(copy.string());
    EXPECT_THAT(faults(c), testing::Contains("rank 0: has no file; 1 of 2 ranks have none"));
    EXPECT_THAT(faults(c), testing::Contains("model.gain: no chunk is there at [0]"));
}

TEST(ReadCheckpoint, JoinsShardsOfSafetensors) {
    const TempFolder folder;
    const StoredCheckpoint c = read_checkpoint((golden / "hf_dcp_shards").string());
    EXPECT_EQ(c.format, CheckpointFormat::dcp_safetensors);
    EXPECT_THAT(named(c, "embed.weight").shape, ElementsAre(37, 10));
    EXPECT_TRUE(c.is_complete());
    const std::filesystem::path copy = copied("hf_dcp_shards", folder);
    std::filesystem::remove(copy / "shard-00001-model-00001-of-00001.safetensors");
    EXPECT_FALSE(read_checkpoint(copy.string()).is_complete());
}

TEST(ReadCheckpoint, ComparesAnIndexWithItsFiles) {
    const TempFolder folder;
    const std::filesystem::path copy = copied("hf_dcp_consolidated", folder);
    EXPECT_TRUE(read_checkpoint(copy.string()).is_complete());
    folder.write("hf_dcp_consolidated/model.safetensors.index.json",
                 R"({"weight_map":{"gain":"model-00001-of-00001.safetensors","x":"absent.safetensors"}})");
    const std::vector<std::string> found = faults(read_checkpoint(copy.string()));
    EXPECT_THAT(found, testing::Contains("absent.safetensors: is not there; the index speaks of it"));
    EXPECT_THAT(found,
                testing::Contains("embed.weight: is in \"model-00001-of-00001.safetensors\", where the "
                                  "index does not place it"));
}

TEST(ReadCheckpoint, TakesFoldersOfAccelerateApart) {
    const TempFolder folder;
    std::filesystem::copy(golden / "dcp_fsdp2_w2", folder.path() / "pytorch_model_fsdp_0",
                          std::filesystem::copy_options::recursive);
    std::filesystem::copy(golden / "torch_full_model_only/full.pt", folder.path() / "optimizer.bin");
    folder.write("random_states_0.pkl", "x");
    const StoredCheckpoint c = read_checkpoint(folder.path().string());
    EXPECT_EQ(c.format, CheckpointFormat::accelerate);
    ASSERT_EQ(c.parts.size(), 2U);
    EXPECT_EQ(c.parts[0].path, "pytorch_model_fsdp_0");
    EXPECT_EQ(c.parts[0].format, CheckpointFormat::dcp);
    EXPECT_EQ(c.parts[1].path, "optimizer.bin");
    EXPECT_EQ(c.model().tensors, 36);  // 18 in each
}

TEST(ReadCheckpoint, SaysWhatASaveThatDidNotFinishLacks) {
    const TempFolder folder;
    const std::filesystem::path copy = copied("dcp_fsdp2_w2", folder);
    std::filesystem::remove(copy / ".metadata");
    try {
        read_checkpoint(copy.string());
        FAIL();
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("the save did not finish"));
    }
}

TEST(IsCheckpoint, LeavesModelsToTheImporters) {
    EXPECT_TRUE(is_checkpoint(golden / "dcp_fsdp2_w2"));
    EXPECT_TRUE(is_checkpoint(golden / "torch_full_model_only/full.pt"));
    EXPECT_TRUE(is_checkpoint(golden / "hf_dcp_shards"));
    EXPECT_FALSE(is_checkpoint(golden / "hf_dcp_consolidated"));  // model.safetensors.index.json
    EXPECT_FALSE(is_checkpoint(golden / "safetensors_full/model.safetensors"));
    EXPECT_FALSE(is_checkpoint(golden / "nothing"));
}

TEST(FindOptimizer, TellsPositionsFromNames) {
    const std::vector<KeyPath> by_position{{"optim", "state", "0", "exp_avg"},
                                           {"optim", "param_groups", "0", "lr"}};
    EXPECT_EQ(find_optimizer(by_position).keys, OptimizerKeys::by_position);
    const std::vector<KeyPath> by_name{{"state", "0.weight", "exp_avg"}, {"param_groups", "0", "lr"}};
    EXPECT_EQ(find_optimizer(by_name).keys, OptimizerKeys::by_name);
    const std::vector<KeyPath> flattened{{"optim", "state.w.exp_avg"}, {"optim", "param_groups.w.lr"}};
    EXPECT_EQ(find_optimizer(flattened).keys, OptimizerKeys::by_flattened_name);
    // A module called state is none.
    const std::vector<KeyPath> module{{"model", "state", "w", "x"}, {"optim", "param_groups", "0", "lr"}};
    EXPECT_EQ(find_optimizer(module).keys, OptimizerKeys::none);
    EXPECT_THAT(find_optimizer(by_position).is_state, ElementsAre(true, false));
}

TEST(RankName, ReadsWhatPyTorchAndAccelerateWrite) {
    EXPECT_EQ(rank_in_name("rank12.pt"), 12);
    EXPECT_EQ(rank_in_name("full.pt"), -1);
    EXPECT_EQ(rank_in_name("pytorch_model-00001-of-00002.bin"), -1);
    EXPECT_EQ(rank_in_name("99999999999999.pt"), -1);
    EXPECT_EQ(rank_of_distcp("__7_1.distcp"), 7);
    EXPECT_EQ(rank_of_distcp("__7.distcp"), -1);
    EXPECT_EQ(rank_of_distcp("__-7_0.distcp"), -1);
    EXPECT_EQ(rank_of_shard("shard-00002-model-00001-of-00001.safetensors"), 1);
    EXPECT_EQ(rank_of_shard("model-00001-of-00001.safetensors"), -1);
}

}  // namespace
}  // namespace fsdplan
