#include "frontend/settings_support.hpp"

namespace fsdplan {
namespace {

using testing::Contains;
using testing::HasSubstr;

FrontendPlan trainer(const std::string& text) {
    return llama().read("Trainer", text);
}

TEST(TrainerFile, ASampleIsReadAsTheTrainerDoes) {
    const FrontendPlan plan = trainer(sample("trainer.json"));
    EXPECT_EQ(plan.job.runtime, "fsdp2");
    EXPECT_EQ(plan.job.batch, 2);
    EXPECT_EQ(plan.job.accumulate, 4);
    EXPECT_TRUE(plan.job.no_sync);
    EXPECT_EQ(plan.job.param_dtype, DType::bfloat16);
    EXPECT_EQ(plan.job.reduce_dtype, DType::bfloat16);
    EXPECT_EQ(plan.trainable_dtype, DType::float32);
    EXPECT_EQ(name(plan.job.optimizer), "adamw:fused");
    EXPECT_EQ(plan.job.activation_checkpointing.mode, ActivationCheckpointing::Mode::blocks);
    EXPECT_EQ(plan.job.activation_checkpointing.placement, ActivationCheckpointing::Placement::forward);
    EXPECT_EQ(plan.policy.calls.size(), 35U);  // 32 blocks, embedding, norm with head, the root
    EXPECT_EQ(setting(plan, "fsdp_config.version"), "2 (file)");
    EXPECT_EQ(setting(plan, "fsdp_config.cpu_offload"), "false (the Trainer's default)");
    EXPECT_THAT(plan.notes, Contains(HasSubstr("did you mean \"gradient_accumulation_steps\"")));
    EXPECT_THAT(plan.notes, Contains("fsdp_config.use_orig_params has no effect in version 2"));
    EXPECT_THAT(plan.notes, Contains(HasSubstr("min_num_params has no effect unless")));
}

TEST(TrainerFile, YamlSaysTheSame) {
    const FrontendPlan plan = trainer(
        "fsdp: true\nbf16: true\nper_device_train_batch_size: 2\nfsdp_config:\n"
        "  transformer_layer_cls_to_wrap: [LlamaDecoderLayer]\n");
    EXPECT_EQ(plan.job.batch, 2);
    EXPECT_EQ(plan.policy.calls.size(), 35U);
}

TEST(TrainerFile, Version1RunsFullShardWhateverIsNamed) {
    const FrontendPlan plan = trainer(R"({"fsdp": "shard_grad_op", "fsdp_config": {"version": 1}})");
    EXPECT_EQ(plan.job.runtime, "fsdp1");
    EXPECT_EQ(plan.job.strategy, Strategy::full_shard);
    EXPECT_TRUE(plan.job.use_orig_params);
    EXPECT_THAT(plan.notes, Contains(HasSubstr("runs FULL_SHARD whatever strategy is named")));
}

TEST(TrainerFile, WithoutFsdpNothingIsSharded) {
    const FrontendPlan plan = trainer(R"({"fsdp_config": {"version": 2}})");
    EXPECT_EQ(plan.job.runtime, "ddp");
    EXPECT_EQ(plan.job.batch, 8);
    EXPECT_THAT(plan.notes, Contains(HasSubstr("fsdp_config has no effect without fsdp")));
}

TEST(TrainerFile, DeepSpeedsAutoIsWhatTheArgumentsSay) {
    const FrontendPlan plan = trainer(
        R"({"bf16": true, "per_device_train_batch_size": 3, "max_grad_norm": 0, "deepspeed": {
            "zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "gradient_clipping": "auto",
            "train_micro_batch_size_per_gpu": "auto"}})");
    EXPECT_EQ(plan.job.runtime, "zero2");
    EXPECT_EQ(plan.job.batch, 3);
    EXPECT_EQ(plan.job.param_dtype, DType::bfloat16);
    EXPECT_EQ(plan.job.clip_norm, std::nullopt);
    EXPECT_EQ(setting(plan, "bf16.enabled"), "true (auto, as the Trainer fills it)");
}

TEST(TrainerFile, WhatTheTrainerRefusesIsRefused) {
    const Asked asked = llama();
    EXPECT_THAT(asked.refusal("Trainer", R"({"bf16": true, "fp16": true})"), HasSubstr("file#/fp16"));
    EXPECT_THAT(asked.refusal("Trainer", R"({"optim": "adamw_torch_fussed"})"),
                HasSubstr("did you mean \"adamw_torch_fused\""));
    EXPECT_THAT(asked.refusal("Trainer", R"({"fsdp": "full_shart"})"), HasSubstr("ValueError"));
    EXPECT_THAT(asked.refusal("Trainer", R"({"fsdp": true, "fsdp_config": "/no/such/file.json"})"),
                HasSubstr("/no/such/file.json"));
    EXPECT_THAT(asked.refusal("Trainer", R"({"fsdp": true, "fsdp_config": [1]})"),
                HasSubstr("expected an object"));
}

TEST(TrainerFile, SyncEachBatchReducesEveryMicroBatch) {
    EXPECT_FALSE(trainer(R"({"gradient_accumulation_steps": 2,
        "accelerator_config": {"gradient_accumulation_kwargs": {"sync_each_batch": true}}})")
                     .job.no_sync);
}

}  // namespace
}  // namespace fsdplan
