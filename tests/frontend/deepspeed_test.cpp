#include "frontend/settings_support.hpp"

namespace fsdplan {
namespace {

using testing::Contains;
using testing::HasSubstr;

FrontendPlan deepspeed(const std::string& text) {
    return llama().read("DeepSpeed", text);
}

TEST(DeepSpeedFile, AutoIsWhatTheTrainerFillsIn) {
    const FrontendPlan plan = deepspeed(sample("deepspeed.json"));
    EXPECT_EQ(plan.job.runtime, "zero3");
    EXPECT_EQ(plan.job.batch, 8);  // per_device_train_batch_size of TrainingArguments
    EXPECT_EQ(plan.job.accumulate, 1);
    EXPECT_EQ(plan.job.param_dtype, std::nullopt);  // bf16 of TrainingArguments is off
    EXPECT_EQ(plan.job.clip_norm, 2.0);             // max_grad_norm is 1
    // Of a hidden size of 4096: its square, int(0.9 * the square), ten times as much.
    EXPECT_EQ(plan.job.zero.reduce_bucket_size, 16'777'216);
    EXPECT_EQ(plan.job.zero.prefetch_bucket_size, 15'099'494);
    EXPECT_EQ(plan.job.zero.param_persistence_threshold, 40'960);
    EXPECT_EQ(setting(plan, "zero_optimization.reduce_bucket_size"),
              "16777216 (auto, as the Trainer fills it)");
}

TEST(DeepSpeedFile, EveryDefaultIsSpelledOut) {
    const FrontendPlan plan = deepspeed(R"({"train_micro_batch_size_per_gpu": 2,
                                            "zero_optimization": {"stage": 3}})");
    EXPECT_EQ(plan.job.zero, ZeroOptions{.overlap_comm = true});  // which stage 3 has on
    EXPECT_EQ(setting(plan, "zero_optimization.stage"), "3 (file)");
    EXPECT_EQ(setting(plan, "zero_optimization.stage3_max_live_parameters"),
              "1000000000 (DeepSpeed's default)");
    EXPECT_EQ(setting(plan, "gradient_clipping"), "1 (DeepSpeed's default)");
    EXPECT_EQ(plan.job.clip_norm, 2.0);
}

TEST(DeepSpeedFile, StagesAreRuntimes) {
    const char* runtimes[] = {"ddp", "zero1", "zero2", "zero3"};
    for (int stage = 0; stage < 4; ++stage) {
        EXPECT_EQ(deepspeed(R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": )" +
                            std::to_string(stage) + "}}")
                      .job.runtime,
                  runtimes[stage]);
    }
    EXPECT_EQ(deepspeed(R"({"train_batch_size": 8, "zero_optimization": true})").job.runtime, "zero1");
    EXPECT_EQ(deepspeed(R"({"train_batch_size": 8})").job.runtime, "ddp");
}

TEST(DeepSpeedFile, OfThreeBatchSizesTwoGiveTheThird) {
    const auto work = [](const std::string& text) {
        const TrainingJob job = deepspeed("{" + text + "}").job;
        return std::pair(job.batch, job.accumulate);
    };
    EXPECT_EQ(work(R"("train_batch_size": 64, "train_micro_batch_size_per_gpu": 2)"), std::pair(2L, 4L));
    EXPECT_EQ(work(R"("train_batch_size": 64, "gradient_accumulation_steps": 4)"), std::pair(2L, 4L));
    EXPECT_EQ(work(R"("train_batch_size": 64)"), std::pair(8L, 1L));
    EXPECT_EQ(work(R"("train_micro_batch_size_per_gpu": 3)"), std::pair(3L, 1L));
    EXPECT_THAT(
        llama().refusal("DeepSpeed", R"({"train_batch_size": 60, "train_micro_batch_size_per_gpu": 2})"),
        HasSubstr("file#/train_batch_size: is 60, but 2 sequences x 3 micro-batches x 8 GPUs are 48"));
    EXPECT_THAT(llama().refusal("DeepSpeed", "{}"), HasSubstr("train_micro_batch_size_per_gpu"));
}

TEST(DeepSpeedFile, PrecisionAndOptimizerAreTaken) {
    const FrontendPlan plan = deepspeed(R"({"train_batch_size": 8, "bf16": {"enabled": true},
        "communication_data_type": "fp32", "data_types": {"grad_accum_dtype": "fp32"},
        "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "adam_w_mode": false}}})");
    EXPECT_EQ(plan.job.param_dtype, DType::bfloat16);
    EXPECT_EQ(plan.job.reduce_dtype, DType::float32);
    EXPECT_TRUE(plan.job.zero.float32_accumulation);
    EXPECT_EQ(name(plan.job.optimizer), "adam:fused");
    EXPECT_THAT(llama().refusal("DeepSpeed", R"({"train_batch_size": 8, "bf16": {"enabled": true},
                                                 "fp16": {"enabled": true}})"),
                HasSubstr("file#/bf16/enabled: is true beside fp16.enabled"));
}

TEST(DeepSpeedFile, WhatHasNoEffectOrIsUnknownIsSaid) {
    const FrontendPlan plan = deepspeed(R"({"train_batch_size": 8, "gradient_cliping": 1,
        "zero_optimization": {"stage": 2, "allgather_bucket_size": 5e8, "stage3_max_live_parameters": 1e9},
        "activation_checkpointing": {}})");
    EXPECT_THAT(plan.notes,
                Contains(HasSubstr("gradient_cliping is no key that is known and is dropped without "
                                   "a word; did you mean \"gradient_clipping\"")));
    EXPECT_THAT(plan.notes, Contains(HasSubstr("allgather_bucket_size has no effect")));
    EXPECT_THAT(plan.notes, Contains(HasSubstr("stage3_max_live_parameters has no effect in stage 2")));
    EXPECT_THAT(plan.notes, Contains(HasSubstr("activation_checkpointing has no effect unless")));
}

TEST(DeepSpeedFile, WhatDeepSpeedRefusesOrNoPlanTellsIsRefused) {
    const Asked asked = llama();
    const auto zero = [&](const std::string& members) {
        return asked.refusal(
            "DeepSpeed", R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, )" + members + "}}");
    };
    EXPECT_THAT(zero(R"("overlap_com": true)"),
                HasSubstr("file#/zero_optimization/overlap_com: unknown key; did you mean \"overlap_comm\""));
    EXPECT_THAT(zero(R"("offload_optimizer": {"device": "cpu"})"),
                HasSubstr("outside of what fsdplan models"));
    EXPECT_EQ(zero(R"("offload_optimizer": {"device": "none"})"), "");
    EXPECT_EQ(zero(R"("prefetch_bucket_size": 5, "sub_group_size": "auto")"), "");
    EXPECT_THAT(zero(R"("prefetch_bucket_size": 5, "stage3_prefetch_bucket_size": 5)"),
                HasSubstr("unknown key"));
    EXPECT_THAT(zero(R"("zero_hpz_partition_size": 8)"), HasSubstr("zero_hpz_partition_size"));
    EXPECT_THAT(zero(R"("reduce_bucket_size": 0.5)"), HasSubstr("found 0.5"));
    EXPECT_THAT(zero(R"("reduce_bucket_size": -5e8)"), HasSubstr("/zero_optimization/reduce_bucket_size"));
    EXPECT_THAT(asked.refusal("DeepSpeed", R"({"train_batch_size": 8, "optimizer": {"type": "OneBitAdam"}})"),
                HasSubstr("file#/optimizer/type: is \"OneBitAdam\""));
}

}  // namespace
}  // namespace fsdplan
