#include "fsdplan/decode.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

// Sizes against the collectives of the real lowering.
namespace fsdplan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A model and what is asked about it.
struct Asked {
    Asked(const std::string& name, std::string runtime, std::int64_t ranks)
        : model(import_model(name, {.dtype = DType::float32})), tree(flatten(model)) {
        job.runtime = std::move(runtime);
        job.mesh = {.replicate = 1, .shard = ranks};
        job.sequence = 128;
        if (!fsdplan::runtime(job.runtime).has_units) {
            job.strategy = fsdplan::runtime(job.runtime).strategies.front();
            job.mesh = {.replicate = ranks, .shard = 1};
        }
        policy.kind = PolicySpec::Kind::module_classes;
        policy.classes = block_classes(tree);
    }

    DecodeResult decode(std::vector<ObservedCollective> observed, bool others = false) const {
        const SweepQuestion about{
            .model = model,
            .tree = tree,
            .policy = policy,
            .sweep_thresholds = false,
            .jobs = {job},
            .cluster = find_cluster({.gpus = job.mesh.ranks(), .gpus_per_node = job.mesh.ranks()})};
        return fsdplan::decode({.about = about,
                                .other_units = others,
                                .other_runtimes = others,
                                .observed = std::move(observed)});
    }

    ModelGraph model;
    ModuleTree tree;
    TrainingJob job;
    PolicySpec policy;
};

ObservedCollective seen(CollectiveKind kind, std::int64_t in, std::int64_t out) {
    return {.op = std::string(name(kind)), .kind = kind, .input_numel = in, .output_numel = out};
}

using enum CollectiveKind;

// GPT-2's blocks have 7,087,872 elements; with those of all but the blocks in the root 39,384,576.
constexpr std::int64_t block = 7'087'872;

TEST(Decode, AGatherOfABlockIsInForwardAndInBackward) {
    const Asked asked("gpt2", "fsdp2", 4);
    const DecodeResult result = asked.decode({seen(all_gather, block / 4, block)});
    EXPECT_EQ(result.world_size, 4);
    ASSERT_EQ(result.matches.size(), 1U);
    const DecodeMatch& match = result.matches.front();
    EXPECT_EQ(match.part, DecodedPart::unit);
    EXPECT_EQ(match.class_name, "GPT2Block");
    EXPECT_EQ(match.count, 12);
    EXPECT_EQ(match.units.front(), "transformer.h.0");
    EXPECT_EQ(match.units.back(), "transformer.h.11");
    EXPECT_EQ(match.numel, block);
    EXPECT_EQ(match.padding, 0);
    EXPECT_EQ(match.passes,
              (std::map<DecodedPass, std::int64_t>{{DecodedPass::forward, 12}, {DecodedPass::backward, 12}}));
    EXPECT_EQ(match.positions.first, 2);  // behind the root's
    EXPECT_TRUE(result.complete());
    EXPECT_EQ(result.tried, 1);
}

TEST(Decode, AReductionOfTheRootIsTheLastOfAStep) {
    const Asked asked("gpt2", "fsdp2", 4);
    constexpr std::int64_t padding = std::int64_t{3} * 768;  // 50,257 rows on four ranks: three more
    const std::int64_t root = asked.tree.numel[0] - 12 * block + padding;
    const DecodeResult result = asked.decode({seen(reduce_scatter, root, root / 4)});
    ASSERT_EQ(result.matches.size(), 1U);
    const DecodeMatch& match = result.matches.front();
    EXPECT_THAT(match.units, ElementsAre(""));
    EXPECT_EQ(match.padding, padding);
    EXPECT_EQ(match.positions.last, match.positions.of);
    EXPECT_THAT(match.passes, ElementsAre(std::pair(DecodedPass::reduction, 1)));
}

TEST(Decode, FlatParametersArePaddedOtherwise) {
    // Seven ranks: 7,087,872 + 6; FSDP2 pads each parameter's rows.
    const std::vector observed{seen(all_gather, (block + 6) / 7, block + 6)};
    EXPECT_TRUE(Asked("gpt2", "fsdp2", 7).decode(observed).matches.empty());
    const DecodeResult flat = Asked("gpt2", "fsdp1", 7).decode(observed);
    ASSERT_EQ(flat.matches.size(), 1U);
    EXPECT_EQ(flat.matches.front().padding, 6);
    const DecodeResult other = Asked("gpt2", "fsdp2", 7).decode(observed, true);
    ASSERT_EQ(other.matches.size(), 1U);
    EXPECT_EQ(other.job.runtime, "fsdp1");
}

TEST(Decode, BucketsOfDdpAreNoUnits) {
    const DecodeResult result = Asked("gpt2", "ddp", 4).decode({seen(all_reduce, block, block)});
    ASSERT_EQ(result.matches.size(), 1U);
    EXPECT_EQ(result.matches.front().part, DecodedPart::bucket);
    EXPECT_EQ(result.matches.front().count, 11);
    EXPECT_FALSE(result.world_size.has_value());
}

TEST(Decode, GradientsOfTheWholeModelAreNotSmall) {
    const Asked asked("gpt2", "zero1", 4);
    const std::int64_t all = asked.tree.numel[0];
    const DecodeResult result = asked.decode({seen(all_reduce, all, all), seen(all_reduce, 1, 1)});
    ASSERT_EQ(result.matches.size(), 2U);
    EXPECT_EQ(result.matches[0].part, DecodedPart::unit);
    EXPECT_THAT(result.matches[0].units, ElementsAre(""));
    EXPECT_EQ(result.matches[1].part, DecodedPart::small);
}

TEST(Decode, RefusedUnitsAreSaid) {
    // CLIP's root keeps a scalar, which FSDP cannot shard.
    const DecodeResult result =
        Asked("openai/clip-vit-large-patch14", "fsdp2", 4).decode({seen(all_gather, 11, 44)});
    EXPECT_EQ(result.tried, 0);
    EXPECT_THAT(result.notes, ElementsAre(HasSubstr("PyTorch refuses the asked units: ")));
    EXPECT_FALSE(result.complete());
}

TEST(Decode, PiecesOfGradientsCrossReplicas) {
    const DecodeResult result =
        Asked("gpt2", "fsdp2", 4)
            .decode({seen(all_gather, block / 4, block), seen(all_reduce, block / 4, block / 4)}, true);
    EXPECT_EQ(result.job.strategy, Strategy::hybrid_shard);
    ASSERT_EQ(result.matches.size(), 2U);
    EXPECT_EQ(result.matches[1].part, DecodedPart::shard);
    EXPECT_EQ(result.matches[1].group, RankGroup::replicate);
    EXPECT_EQ(result.matches[1].count, 12);
}

TEST(Decode, RanksOfShardAndReplicateGroupsAreNotCompared) {
    std::vector observed{seen(all_gather, block / 4, block), seen(all_reduce, block / 4, block / 4)};
    observed[0].rank = 0;
    observed[1].rank = 5;
    EXPECT_FALSE(Asked("gpt2", "fsdp2", 4).decode(observed, true).order.in_step.has_value());
    observed[1] = seen(reduce_scatter, block, block / 4);
    observed[1].rank = 3;
    const DecodeResult result = Asked("gpt2", "fsdp2", 4).decode(observed, true);
    EXPECT_EQ(result.order.in_step, false);
    EXPECT_THAT(result.notes, ElementsAre(HasSubstr("ranks 1, 2 are not in these lines")));
}

TEST(Decode, ASingleTableIsNamedWithItsShape) {
    // 151,936 x 2,048 = 311,164,928, of which 16 ranks have 19,447,808 each.
    const DecodeResult result =
        Asked("qwen3-30b-a3b", "fsdp2", 16).decode({seen(all_gather, 19'447'808, 311'164'928)}, true);
    EXPECT_EQ(result.world_size, 16);
    ASSERT_EQ(result.matches.size(), 2U);
    EXPECT_EQ(result.matches[0].parameter, "model.embed_tokens.weight");
    EXPECT_EQ(result.matches[1].parameter, "lm_head.weight");
    for (const DecodeMatch& match : result.matches) {
        EXPECT_THAT(match.shape, ElementsAre(151936, 2048));
    }
}

TEST(Decode, AParameterAloneIsNoUnit) {
    // Blocks are units; a state dict gathers 2,304 x 768 of c_attn by itself.
    const DecodeResult result = Asked("gpt2", "fsdp2", 4).decode({seen(all_gather, 442'368, 1'769'472)});
    ASSERT_EQ(result.matches.size(), 1U);
    EXPECT_EQ(result.matches.front().part, DecodedPart::parameter);
    EXPECT_EQ(result.matches.front().parameter, "transformer.h.0.attn.c_attn.weight");
    EXPECT_EQ(result.matches.front().count, 12);
    EXPECT_TRUE(result.matches.front().passes.empty());
}

TEST(Decode, WhatNothingMatchesHasNeighbours) {
    const DecodeResult result =
        Asked("gpt2", "fsdp2", 4).decode({seen(all_gather, block / 4 + 2, block + 8)});
    EXPECT_FALSE(result.complete());
    ASSERT_FALSE(result.nearest.empty());
    EXPECT_EQ(result.nearest.front().numel, block);
    EXPECT_EQ(result.nearest.front().distance, 8);
    EXPECT_EQ(result.nearest.front().class_name, "GPT2Block");
}

TEST(Decode, BothSizesCount) {
    for (const auto& observed :
         {seen(all_gather, block / 4, block + 4), seen(all_gather, block / 4 + 1, block)}) {
        EXPECT_TRUE(Asked("gpt2", "fsdp2", 4).decode({observed}).matches.empty());
    }
}

TEST(Decode, WhatNoPlanExplainsIsComparedWithTheAskedOne) {
    const DecodeResult result = Asked("gpt2", "fsdp2", 4).decode({seen(all_gather, 11, 44)}, true);
    EXPECT_GT(result.tried, 10);
    EXPECT_EQ(result.job.runtime, "fsdp2");
    EXPECT_EQ(result.units, 13);
}

TEST(Decode, ModulesOfOneCallAreOneUnit) {
    // As torchtitan groups them: 4,096 of the norm and 128,256 x 4,096 of the head.
    constexpr std::int64_t both = 4'096 + std::int64_t{128'256} * 4'096;
    const DecodeResult result =
        Asked("llama3-8b", "fsdp2", 8).decode({seen(all_gather, both / 8, both)}, true);
    ASSERT_EQ(result.matches.size(), 1U);
    EXPECT_EQ(result.matches.front().class_name, "LlamaRMSNorm + Linear");
    EXPECT_THAT(result.matches.front().units, ElementsAre("model.norm, lm_head"));
}

TEST(Decode, OtherRanksThanTheJobHasAreSaid) {
    const DecodeResult result = Asked("gpt2", "fsdp2", 8).decode({seen(all_gather, block / 4, block)});
    EXPECT_FALSE(result.complete());
    EXPECT_EQ(result.nearest.front().distance, 0);
    EXPECT_EQ(result.nearest.front().ranks, 8);
    EXPECT_THAT(result.notes, ElementsAre("the sizes say that 4 ranks share a parameter, the job that 8 do"));
}

TEST(Decode, WithoutSizesNothingIsTried) {
    const DecodeResult result = Asked("gpt2", "fsdp2", 4).decode({{.op = "COALESCED"}}, true);
    EXPECT_EQ(result.tried, 1);
    EXPECT_FALSE(result.complete());
}

// Every collective of every runtime that has units is found again by its own sizes.
TEST(Decode, FindsEachCollectiveOfAStep) {
    for (const char* runtime : {"fsdp1", "fsdp2"}) {
        const Asked asked("gpt2", runtime, 8);
        const SweepQuestion about{.model = asked.model,
                                  .tree = asked.tree,
                                  .policy = asked.policy,
                                  .sweep_thresholds = false,
                                  .jobs = {asked.job},
                                  .cluster = find_cluster({.gpus = 8})};
        for (const Collective& call : evaluate(about, units_of(about, asked.job), asked.job).collectives) {
            SCOPED_TRACE(std::string(runtime) + " " + std::string(name(call.kind)));
            const DecodeResult result = asked.decode({seen(call.kind, call.input_numel, call.output_numel)});
            const std::int64_t calls = std::accumulate(
                result.matches.begin(), result.matches.end(), std::int64_t{0},
                [](std::int64_t sum, const DecodeMatch& match) {
                    return std::accumulate(match.passes.begin(), match.passes.end(), sum,
                                           [](std::int64_t n, const auto& pass) { return n + pass.second; });
                });
            EXPECT_EQ(calls, call.count);
        }
    }
}

}  // namespace
}  // namespace fsdplan
