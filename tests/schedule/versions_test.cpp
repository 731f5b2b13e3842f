#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdplan/schedule.hpp"
#include "support/model_in_code.hpp"

// Where versions of PyTorch differ.
namespace fsdplan {
namespace {

TEST(TorchVersions, AreFoundByMajorAndMinor) {
    for (const TorchBehaviour& known : torch_versions()) {
        const std::string version(known.version);
        EXPECT_EQ(torch_behaviour(version).version, version);
        EXPECT_EQ(torch_behaviour(version + ".1").version, version);
        EXPECT_FALSE(known.summary.empty()) << version;
    }
    EXPECT_EQ(torch_behaviour(TrainingJob{}.torch).version, newest_torch);
}

TEST(TorchVersions, OthersAreRefusedWithThoseThatAreKnown) {
    for (const char* version : {"2.14", "2", "", "2.131", "x.y.z"}) {
        try {
            torch_behaviour(version);
            FAIL() << version;
        } catch (const Error& error) {
            const std::string text = error.what();
            EXPECT_THAT(text,
                        testing::StartsWith("--torch: unknown version \"" + std::string(version) + '"'));
            for (const TorchBehaviour& known : torch_versions()) {
                EXPECT_THAT(text, testing::HasSubstr(std::string(known.version)));
            }
        }
    }
}

/// The dtypes in which a float32 layer on four ranks is reduced.
std::vector<DType> reduced_in(std::string_view version, std::optional<DType> param,
                              std::optional<DType> reduce) {
    test::ModelInCode model("toys.Model");
    model.child(model.root(), "layer", test::linear, {{"weight", {8, 4}}});
    const ModuleTree tree = flatten(model.graph());
    TrainingJob job;
    job.torch = version;
    job.mesh = {.replicate = 1, .shard = 4};
    job.param_dtype = param;
    job.reduce_dtype = reduce;
    const WrapPlan plan = wrap_fsdp2(tree, {}, wrap_options(job));
    std::vector<DType> found;
    for (const CollectiveCall& call : lower({.tree = tree, .plan = plan, .job = job}).collectives) {
        if (call.kind == CollectiveKind::reduce_scatter) {
            found.push_back(call.dtype);
        }
    }
    return found;
}

// Recorded: golden/runtime and golden/runtime-2.15.
TEST(TorchVersions, FullyShardReducesInTheOriginalDtypeSince215) {
    using enum DType;
    const std::vector<DType> low{bfloat16};
    const std::vector<DType> full{float32};
    EXPECT_EQ(reduced_in("2.13", bfloat16, std::nullopt), low);
    EXPECT_EQ(reduced_in("2.15", bfloat16, std::nullopt), full);
    for (const char* version : {"2.13", "2.15"}) {  // what is given counts everywhere
        EXPECT_EQ(reduced_in(version, bfloat16, bfloat16), low) << version;
        EXPECT_EQ(reduced_in(version, bfloat16, float32), full) << version;
        EXPECT_EQ(reduced_in(version, std::nullopt, std::nullopt), full) << version;
    }
}

}  // namespace
}  // namespace fsdplan
