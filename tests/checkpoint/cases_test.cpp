#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/compatibility.hpp"

// Questions that people asked in public, with their right answers (tests/cases).
namespace fsdplan {
namespace {

const std::filesystem::path folder = std::filesystem::path(FSDPLAN_TEST_DATA) / "cases";

StateLayout llama_on_8_gpus(const std::string& config) {
    const ModelGraph model = import_model(config, {.dtype = DType::bfloat16});
    TrainingJob job;
    job.runtime = "fsdp1";
    job.mesh = {.replicate = 1, .shard = 8};
    PolicySpec blocks;
    blocks.kind = PolicySpec::Kind::module_classes;
    blocks.classes = {"LlamaDecoderLayer"};
    const ModuleTree tree = flatten(model);
    const WrapOptions options{.world_size = 8, .mixed_precision = true, .param_dtype = DType::bfloat16};
    return state_layout(model, wrap_fsdp1(tree, blocks, options), job);
}

TEST(FullStateDictOnEveryRank, MultipliesTheModelOnTheHost) {
    const std::filesystem::path here = folder / "12-full-state-dict-on-every-rank";
    const json::Document document(read_text(here / "expected.json"), "expected.json");
    const json::Value expect = document.root().at("expect");
    const StateLayout layout = llama_on_8_gpus((here / "config.json").string());

    StateRequest request{.form = StateRequest::Form::full, .offload = true};
    std::int64_t on_host = 0;
    for (std::int64_t rank = 0; rank < 8; ++rank) {
        on_host += state_call(layout, request, rank).host_kept_bytes;
    }
    EXPECT_EQ(on_host, expect.at("full_every_rank_host_bytes").integer());

    request.rank0_only = true;
    EXPECT_EQ(state_call(layout, request, 0).host_kept_bytes, expect.at("copy_bytes").integer());
    EXPECT_EQ(state_call(layout, request, 1).host_kept_bytes, 0);

    const StateRequest sharded{.form = StateRequest::Form::sharded, .offload = true};
    std::int64_t pieces = 0;
    for (std::int64_t rank = 0; rank < 8; ++rank) {
        EXPECT_EQ(state_call(layout, sharded, rank).host_kept_bytes,
                  expect.at("sharded_bytes_per_rank").integer());
        pieces += state_call(layout, sharded, rank).host_kept_bytes;
    }
    EXPECT_EQ(pieces, expect.at("sharded_host_bytes").integer());
}

std::vector<std::int64_t> shape_in(const std::filesystem::path& file, const std::string& name) {
    const json::Document document(read_text(file), file.filename().string());
    std::vector<std::int64_t> shape;
    for (const json::Value size : document.root().at(name).elements()) {
        shape.push_back(size.integer(1, largest_total));
    }
    return shape;
}

TEST(FullCheckpointIntoFlatShards, IsToldByTheTwoShapes) {
    const std::filesystem::path here = folder / "19-full-checkpoint-into-flat-shards";
    const json::Document document(read_text(here / "expected.json"), "expected.json");
    const json::Value expect = document.root().at("expect");
    const ShapeMismatch found = explain_mismatch(shape_in(here / "saved.json", "embed_tokens.weight"),
                                                 shape_in(here / "current.json", "embed_tokens.weight"));
    EXPECT_EQ(found.ranks, expect.at("world_size").integer());
    EXPECT_EQ(found.saved, expect.at("saved_kind").string());
    EXPECT_EQ(found.current, expect.at("current_kind").string());
    EXPECT_TRUE(found.remedy.starts_with(expect.at("fix").string())) << found.remedy;
}

}  // namespace
}  // namespace fsdplan
