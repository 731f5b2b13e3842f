#include "frontend/settings_support.hpp"

namespace fsdplan {
namespace {

using testing::HasSubstr;

Asked asked() {
    Asked out = torchtitan_llama();
    out.ranks = 4;
    return out;
}

TEST(PlanFile, WhatWasRecommendedIsReadBack) {
    const FrontendPlan plan = asked().read("fsdplan", sample("plan.json"));
    EXPECT_EQ(plan.job.runtime, "fsdp2");
    EXPECT_EQ(plan.job.torch, "2.13");
    EXPECT_EQ(plan.job.mesh, (Mesh{.replicate = 1, .shard = 4}));
    EXPECT_EQ(plan.job.reduce_dtype, DType::float32);
    EXPECT_EQ(plan.job.batch, 2);
    EXPECT_EQ(plan.job.accumulate, 4);
    EXPECT_TRUE(plan.job.no_sync);
    EXPECT_EQ(name(plan.job.optimizer), "adamw:fused");
    EXPECT_EQ(plan.job.activation_checkpointing.modules,
              (std::vector<std::string>{"layers.0", "layers.2", "layers.4"}));
    ASSERT_EQ(plan.job.fsdp2.forward_prefetch.size(), 1U);
    EXPECT_EQ(plan.job.fsdp2.forward_prefetch[0].second, (std::vector<std::string>{"layers.1", "layers.2"}));
    ASSERT_EQ(plan.policy.calls.size(), 9U);
    EXPECT_EQ(plan.policy.calls[1].arguments, (UnitArguments{{"reshard_after_forward", "2"}}));
    EXPECT_EQ(plan.policy.calls[7].modules, (std::vector<std::string>{"norm", "lm_head"}));
    EXPECT_TRUE(plan.policy.calls[7].list);
}

TEST(PlanFile, UnitsOfVersion1AreWrappedByHand) {
    std::string text = replaced(sample("plan.json"), "\"fsdp2\"", "\"fsdp1\"");
    text = replaced(text, R"("modules": ["norm", "lm_head"], "numel": 524544)",
                    R"("modules": ["lm_head"], "numel": 524288)");
    text = replaced(text, R"("modules": [""], "numel": 0)", R"("modules": [""], "numel": 256)");
    const std::size_t begin = text.find(R"({"forward": [[)");
    text.replace(begin, text.find('\n', begin) - begin,
                 R"({"backward": "BACKWARD_POST", "forward": true, "limit_all_gathers": false},)");
    const FrontendPlan plan = asked().read("fsdplan", text);
    EXPECT_EQ(plan.policy.kind, PolicySpec::Kind::manual);
    EXPECT_EQ(plan.policy.calls.size(), 8U);  // the root is added
    EXPECT_EQ(plan.job.backward_prefetch, BackwardPrefetch::post);
    EXPECT_TRUE(plan.job.forward_prefetch);
    EXPECT_FALSE(plan.job.limit_all_gathers);
}

TEST(PlanFile, AnotherModelIsRefusedAtItsFirstDifference) {
    EXPECT_THAT(
        llama().refusal("fsdplan", sample("plan.json")),
        HasSubstr(
            "/parameters/0: is a plan for another model: the model has \"model.embed_tokens.weight\" in "
            "the place of \"tok_embeddings.weight\""));
    EXPECT_THAT(asked().refusal("fsdplan", replaced(sample("plan.json"), "[2048, 256]", "[2048, 128]")),
                HasSubstr("has the shape [2048, 256], not [2048, 128]"));
    EXPECT_THAT(asked().refusal("fsdplan", replaced(sample("plan.json"), "\"dtype\": \"float32\"",
                                                    "\"dtype\": \"bfloat16\"")),
                HasSubstr("is in float32, not bfloat16"));
    EXPECT_THAT(asked().refusal("fsdplan", replaced(sample("plan.json"), "\"requires_grad\": true",
                                                    "\"requires_grad\": false")),
                HasSubstr("is trainable"));
}

TEST(PlanFile, DamageIsNamed) {
    const auto refusal = [](const std::string& from, const std::string& to) {
        return asked().refusal("fsdplan", replaced(sample("plan.json"), from, to));
    };
    EXPECT_THAT(refusal("\"layers.3\"", "\"layers.33\""), HasSubstr("the model has no module \"layers.33\""));
    EXPECT_THAT(refusal("852480", "852481"), HasSubstr("expected 852480 elements"));
    EXPECT_THAT(refusal("adamw:fused", "adamw:fussed"), HasSubstr("wrap_plan/optimizer: "));
    EXPECT_THAT(refusal("\"inside\"", "\"within\""), HasSubstr("placement: expected"));
    EXPECT_THAT(refusal("\"shard\": 4", "\"shard\": 8"), HasSubstr("are not the 4 that are asked about"));
    EXPECT_THAT(refusal("fsdplan.result", "fsdplan.units"), HasSubstr("expected \"fsdplan.result\""));
    EXPECT_THAT(
        asked().refusal("fsdplan", R"({"format": "fsdplan.result", "version": 1, "recommended": null})"),
        HasSubstr("nothing fitted"));
    EXPECT_THAT(asked().refusal("fsdplan", R"({"format": "fsdplan.result", "version": 1, "plans": []})"),
                HasSubstr("expected a result of `fsdplan plan`"));
}

}  // namespace
}  // namespace fsdplan
