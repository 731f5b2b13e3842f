#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.hpp"
#include "fsdplan/model.hpp"
#include "support/tree_listing.hpp"

namespace fsdplan {
namespace {

using testing::HasSubstr;

std::string fault_of(std::string_view text) {
    try {
        with_lora(import_model("llama3-8b"), parse_lora(text));
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

// Folders of real get_peft_model runs: tests/live/record_peft.py.
TEST(Lora, InsertsAdaptersAsPeftDoes) {
    int cases = 0;
    for (const auto& folder : std::filesystem::directory_iterator(FSDPLAN_TEST_DATA "/model/data/peft")) {
        SCOPED_TRACE(folder.path().filename().string());
        std::string options = read_file(folder.path() / "options.txt");
        options.pop_back();  // the line's end
        const ModelGraph base = import_model((folder.path() / "base.json").string());
        const ModelGraph recorded = import_model((folder.path() / "lora.json").string());
        EXPECT_EQ(tree_listing(with_lora(base, parse_lora(options))), tree_listing(recorded));
        ++cases;
    }
    EXPECT_EQ(cases, 5);
}

TEST(Lora, TrainsOnlyTheAdapters) {
    const ModelGraph graph = with_lora(import_model("llama3-8b"), parse_lora("r=8,targets=q_proj+v_proj"));
    std::int64_t trainable = 0;
    for (const Tensor& tensor : graph.tensors) {
        trainable += tensor.requires_grad ? tensor.numel : 0;
    }
    // In each of 32 layers q_proj is 4096 x 4096 and v_proj 1024 x 4096.
    EXPECT_EQ(trainable, 32 * (8 * (4096 + 4096) + 8 * (4096 + 1024)));
}

TEST(Lora, AdapterDtypeFollowsTheLayerWithoutAutocast) {
    LoraOptions options = parse_lora("r=8,targets=q_proj");
    options.autocast_adapter_dtype = false;
    const ModelGraph graph = with_lora(import_model("llama3-8b"), options);
    for (const Tensor& tensor : graph.tensors) {
        if (tensor.requires_grad) {
            EXPECT_EQ(tensor.dtype, DType::bfloat16);
        }
    }
}

TEST(Lora, ATargetIsWholePartsAtTheEndOfAPath) {
    EXPECT_EQ(fault_of("r=8,targets=self_attn.q_proj"), "accepted");
    EXPECT_EQ(fault_of("r=8,targets=model.layers.3.self_attn.q_proj"), "accepted");
    EXPECT_EQ(
        fault_of("r=8,targets=proj"),
        "--lora: no module's path ends in \"proj\"; did you mean \"k_proj\", \"o_proj\" or \"q_proj\"?");
    EXPECT_THAT(fault_of("r=8,targets=x.model.layers.3.self_attn.q_proj"),
                HasSubstr("no module's path ends in"));
}

TEST(Lora, RefusesWhatPeftCannotAdapt) {
    EXPECT_EQ(
        fault_of("r=8,targets=q_proj+mlp"),
        "--lora: model.layers.0.mlp is a LlamaMLP; expected a Linear, an Embedding or transformers' Conv1D");
}

TEST(Lora, SaysWhatIsWrongWithTheOption) {
    EXPECT_EQ(fault_of("r=0,targets=q_proj"), "--lora: expected a rank from 1 to 1000000, found \"0\"");
    EXPECT_EQ(fault_of("r=8.5,targets=q_proj"), "--lora: expected a rank from 1 to 1000000, found \"8.5\"");
    EXPECT_EQ(fault_of("r=8"), "--lora: names no targets; expected r=8,targets=q_proj+v_proj");
    EXPECT_EQ(fault_of("8"), "--lora: expected r=8,targets=q_proj+v_proj, found \"8\"");
    EXPECT_EQ(fault_of("targets=q_proj+"),
              "--lora: expected targets such as q_proj+v_proj, found \"q_proj+\"");
    EXPECT_EQ(fault_of("r=8,r=8,targets=q_proj"), "--lora: \"r\" is given twice");
    EXPECT_EQ(fault_of("target=q_proj"),
              "--lora: unknown key \"target\"; did you mean \"targets\"?; expected r, targets and dropout");
    EXPECT_EQ(fault_of("dropout=nan,targets=q_proj"),
              "--lora: expected a dropout from 0 to 1, found \"nan\"");
}

TEST(Freeze, CoversParametersAtAndBelowAPath) {
    const auto trainable = [](std::vector<std::string> globs) {
        const ModelGraph graph = with_frozen(import_model("llama3-8b"), globs);
        std::int64_t numel = 0;
        for (const Tensor& tensor : graph.tensors) {
            numel += tensor.requires_grad ? tensor.numel : 0;
        }
        return numel;
    };
    constexpr std::int64_t all = 8'030'261'248;
    constexpr std::int64_t embedding = 128'256LL * 4096;
    constexpr std::int64_t layer = 218'112'000;
    EXPECT_EQ(trainable({}), all);
    EXPECT_EQ(trainable({"model.embed_tokens"}), all - embedding);
    EXPECT_EQ(trainable({"*embed_tokens.weight"}), all - embedding);
    EXPECT_EQ(trainable({"model.layers.1?"}), all - 10 * layer);
    EXPECT_EQ(trainable({"model.layers.1"}), all - layer);
    EXPECT_EQ(trainable({"lm_head", "model"}), 0);
}

TEST(Freeze, FindsATiedWeightUnderEitherName) {
    const ModelGraph graph = import_model(FSDPLAN_TEST_DATA "/model/data/peft/llama-tied-head/base.json");
    const std::vector<std::string> by_head{"lm_head"};
    const std::vector<std::string> by_embedding{"model.embed_tokens"};
    EXPECT_EQ(tree_listing(with_frozen(graph, by_head)), tree_listing(with_frozen(graph, by_embedding)));
    EXPECT_NE(tree_listing(with_frozen(graph, by_head)), tree_listing(graph));
}

TEST(Freeze, FindsASharedModuleUnderEitherPath) {
    const ModelGraph graph = import_model(FSDPLAN_TEST_DATA "/model/data/peft/toy/base.json");
    const std::vector<std::string> first{"first.0.weight"};
    const std::vector<std::string> second{"second.proj.weight"};
    EXPECT_EQ(tree_listing(with_frozen(graph, first)), tree_listing(with_frozen(graph, second)));
    EXPECT_NE(tree_listing(with_frozen(graph, first)), tree_listing(graph));
}

TEST(Freeze, AGlobThatMatchesNothingIsAnError) {
    const std::vector<std::string> globs{"model.embed_token"};
    try {
        with_frozen(import_model("llama3-8b"), globs);
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(),
                    HasSubstr("--freeze: no parameter is at or below \"model.embed_token\"; did you "
                              "mean \"model.embed_tokens\""));
    }
}

}  // namespace
}  // namespace fsdplan
