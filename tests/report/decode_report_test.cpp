#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.hpp"
#include "fsdplan/report.hpp"

namespace fsdplan {
namespace {

using testing::HasSubstr;

ObservedCollective of_rank(std::int64_t rank, CollectiveKind kind, std::int64_t in, std::int64_t out) {
    return {.rank = rank,
            .sequence = 7,
            .op = std::string(name(kind)),
            .kind = kind,
            .input_numel = in,
            .output_numel = out};
}

/// Two ranks of four around GPT-2's blocks of 7,087,872 elements, one with a size that nothing has.
struct Decoded {
    Decoded() : model(import_model("gpt2", {.dtype = DType::float32})), tree(flatten(model)) {
        question.policy.kind = PolicySpec::Kind::module_classes;
        question.policy.classes = {"GPT2Block"};
        result = decode({.about = question,
                         .observed = {of_rank(0, CollectiveKind::all_gather, 1'771'968, 7'087'872),
                                      of_rank(1, CollectiveKind::reduce_scatter, 7'087'880, 1'771'970)}});
    }

    ModelGraph model;
    ModuleTree tree;
    SweepQuestion question{.model = model,
                           .tree = tree,
                           .policy = {},
                           .sweep_thresholds = false,
                           .jobs = {{.mesh = {.replicate = 1, .shard = 4}, .sequence = 128}},
                           .cluster = find_cluster({.gpus = 4})};
    DecodeResult result;
};

TEST(DecodeReport, JsonHoldsTheKeysThatScriptsRelyOn) {
    const Decoded decoded;
    const json::Document document(json_report(decoded.question, decoded.result, "0"), "decode.json");
    const json::Value root = document.root();
    EXPECT_EQ(root.at("command").string(), "decode");
    EXPECT_EQ(root.at("world_size").integer(), 4);
    EXPECT_FALSE(root.at("ranks_in_step").boolean());
    EXPECT_EQ(root.at("matches").size(), 1U);
    for (const json::Value match : root.at("matches").elements()) {
        EXPECT_EQ(match.at("op").string(), "all_gather");
        EXPECT_EQ(match.at("unit").string(), "transformer.h.0");
        EXPECT_EQ(match.at("class").string(), "GPT2Block");
        EXPECT_EQ(match.at("count").integer(), 12);
        EXPECT_EQ(match.at("units").size(), 12U);
        EXPECT_EQ(match.at("numel").integer(), 7'087'872);
        EXPECT_EQ(match.at("parameter").string(), "");
        EXPECT_EQ(match.at("sighting").integer(), 0);
    }
    std::int64_t first_distance = 0;
    for (const json::Value near : root.at("nearest").elements()) {
        EXPECT_EQ(near.at("sighting").integer(), 1);
        first_distance = first_distance == 0 ? near.at("distance").integer() : first_distance;
    }
    EXPECT_EQ(first_distance, 8);
}

TEST(DecodeReport, TextSaysWhatItIsAndWhoIsWhere) {
    const Decoded decoded;
    const std::string text = text_report(decoded.question, decoded.result);
    EXPECT_THAT(text, HasSubstr("rank 0: all gather, 1,771,968 elements in, 7,087,872 out\n"
                                "  all of a GPT2Block, one of 12: transformer.h.0 to transformer.h.11\n"));
    EXPECT_THAT(text, HasSubstr("gathered in forward (12 times) or in backward (12 times)"));
    EXPECT_THAT(text, HasSubstr("nearest, 8 elements fewer: reduce scatter of 7,087,872 over 4 ranks, "));
    EXPECT_THAT(text, HasSubstr("In step    no: rank 0 waits for"));
    EXPECT_THAT(text, HasSubstr("note: ranks 2, 3 are not in these lines"));
}

TEST(DecodeReport, HasNoPage) {
    const Decoded decoded;
    try {
        check_result(json_report(decoded.question, decoded.result, "0"), "d.json");
        FAIL();
    } catch (const Error& error) {
        EXPECT_STREQ(
            error.what(),
            R"(d.json#/command: expected the result of a command that has a page, "sweep", found "decode")");
    }
}

}  // namespace
}  // namespace fsdplan
