#include "frontend/settings_support.hpp"
#include "frontend/toml_file.hpp"

namespace fsdplan {
namespace {

using testing::Contains;
using testing::HasSubstr;

FrontendPlan torchtitan(const std::string& text) {
    return torchtitan_llama().read("torchtitan", text);
}

TEST(TorchtitanFile, ASampleIsReadAsTorchtitanDoes) {
    const FrontendPlan plan = torchtitan(sample("torchtitan.toml"));
    EXPECT_EQ(plan.job.runtime, "fsdp2");
    EXPECT_EQ(plan.job.mesh, (Mesh{.replicate = 1, .shard = 8}));
    EXPECT_EQ(plan.job.batch, 1);
    EXPECT_EQ(plan.job.accumulate, 1);
    EXPECT_EQ(plan.job.sequence, 8192);
    EXPECT_EQ(plan.job.param_dtype, DType::bfloat16);
    EXPECT_EQ(plan.job.reduce_dtype, DType::float32);
    EXPECT_EQ(plan.job.clip_norm, 2.0);
    EXPECT_EQ(name(plan.job.optimizer), "adamw:fused");
    EXPECT_EQ(plan.job.activation_checkpointing.mode, ActivationCheckpointing::Mode::selective);
    EXPECT_EQ(plan.policy.calls.size(), 9U);  // embedding, head with norm, 6 blocks, the root
    EXPECT_THAT(plan.notes, Contains(HasSubstr("training/compile is simulated eagerly")));
    EXPECT_EQ(setting(plan, "training.mixed_precision_reduce"), "float32 (torchtitan's default)");
    EXPECT_EQ(setting(plan, "training.seq_len"), "8192 (file)");
}

TEST(TorchtitanFile, AnEmptyFileHasTorchtitansDefaults) {
    const FrontendPlan plan = torchtitan("");
    EXPECT_EQ(plan.job.batch, 8);
    EXPECT_EQ(plan.job.sequence, 2048);
    EXPECT_EQ(plan.job.activation_checkpointing.mode, ActivationCheckpointing::Mode::every);
    EXPECT_EQ(plan.job.activation_checkpointing.every, 2);
    EXPECT_TRUE(plan.job.activation_checkpointing.wrapped);
}

TEST(TorchtitanFile, AGlobalBatchIsAccumulated) {
    const std::string file = "[training]\nlocal_batch_size = 2\nglobal_batch_size = ";
    EXPECT_EQ(torchtitan(file + "64").job.accumulate, 4);  // 64 = 2 sequences x 8 GPUs x 4
    EXPECT_THAT(torchtitan_llama().refusal("torchtitan", file + "60"),
                HasSubstr("file#/training/global_batch_size: is 60, no multiple of 2 sequences x 8 GPUs"));
}

TEST(TorchtitanFile, DegreesMakeTheMesh) {
    EXPECT_EQ(torchtitan("[parallelism]\ndata_parallel_replicate_degree = 2\n").job.mesh,
              (Mesh{.replicate = 2, .shard = 4}));
    const Asked asked = torchtitan_llama();
    EXPECT_THAT(asked.refusal("torchtitan", "[parallelism]\ndata_parallel_shard_degree = 4\n"),
                HasSubstr("1 replicas x 4 shards are not 8 GPUs"));
    for (const char* degree : {"tensor_parallel_degree", "pipeline_parallel_degree",
                               "context_parallel_degree", "expert_parallel_degree"}) {
        EXPECT_THAT(asked.refusal("torchtitan", std::string("[parallelism]\n") + degree + " = 2\n"),
                    HasSubstr("outside of what fsdplan models so far"));
    }
}

TEST(TorchtitanFile, ReshardingIsThatOfEveryCall) {
    const auto reshard = [](const std::string& word) {
        const PolicySpec policy =
            torchtitan("[parallelism]\nfsdp_reshard_after_forward = \"" + word + "\"\n").policy;
        return *find_argument(policy.calls[2].arguments, "reshard_after_forward") +  // a block
               *find_argument(policy.calls[1].arguments, "reshard_after_forward");   // norm and head
    };
    EXPECT_EQ(reshard("default"), "truefalse");
    EXPECT_EQ(reshard("always"), "truetrue");
    EXPECT_EQ(reshard("never"), "falsefalse");
    EXPECT_THAT(
        torchtitan_llama().refusal("torchtitan", "[parallelism]\nfsdp_reshard_after_forward = \"no\"\n"),
        HasSubstr("expected \"default\", \"always\" or \"never\", found \"no\""));
}

TEST(TorchtitanFile, UnknownKeysAndOtherModelsAreNamed) {
    EXPECT_THAT(torchtitan("[training]\nseqlen = 4096\n").notes,
                Contains(HasSubstr("training/seqlen is no key that is known")));
    EXPECT_THAT(llama().refusal("torchtitan", ""), HasSubstr("model_type torchtitan_llama"));
}

TEST(TomlFile, HostileTextEndsInALine) {
    const Asked asked = torchtitan_llama();
    EXPECT_THAT(asked.refusal("torchtitan", "a = [b"), HasSubstr("file:1: is no TOML"));
    EXPECT_THAT(asked.refusal("torchtitan", "\n[a]\n[a]\n"), HasSubstr("file:3: is no TOML"));
    // What a parser that recurses dies of.
    EXPECT_THAT(asked.refusal("torchtitan", "a = " + std::string(100'000, '[')), HasSubstr("is no TOML"));
    std::string dotted = "a";
    for (int depth = 0; depth < 100'000; ++depth) {
        dotted += ".a";
    }
    EXPECT_THAT(asked.refusal("torchtitan", dotted + " = 1"), HasSubstr("dots"));
    EXPECT_NE(asked.refusal("torchtitan", std::string("a = \"\0\"", 7)), "");
    EXPECT_THAT(asked.refusal("torchtitan", "[training]\nseq_len = 9223372036854775808\n"),
                HasSubstr("file:2"));
    EXPECT_THAT(asked.refusal("torchtitan", "[training]\nmax_norm = nan\n"), HasSubstr("expected a number"));
    EXPECT_THAT(asked.refusal("torchtitan", "training = 3\n"), HasSubstr("expected settings by name"));
}

TEST(TomlFile, ValuesKeepTheirTypes) {
    EXPECT_EQ(frontend::toml_as_json("i = 1\nd = 1979-05-27\ns = \"x\"\nl = [true]\n", "file").find('\''),
              std::string::npos);
}

}  // namespace
}  // namespace fsdplan
