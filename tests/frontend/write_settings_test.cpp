#include "frontend/settings_support.hpp"
#include "fsdplan/schedule.hpp"

namespace fsdplan {
namespace {

using testing::HasSubstr;

/// What a settings file makes of a model, as a plan to write down.
struct Planned {
    Asked asked;
    FrontendPlan settings;
    WrapPlan units;

    Planned(Asked about, std::string_view front, const std::string& text)
        : asked(std::move(about)), settings(asked.read(front, text)) {
        for (Tensor& tensor : asked.model.tensors) {
            tensor.dtype = settings.trainable_dtype.value_or(tensor.dtype);
        }
        asked.tree = flatten(asked.model);
        if (settings.job.mesh.ranks() == 1) {
            settings.job.mesh.shard = asked.ranks;
        }
        draw();
    }

    void draw() {
        if (runtime(settings.job.runtime).has_units) {
            units = settings.job.runtime == "fsdp2" ? wrap_fsdp2(asked.tree, settings.policy, settings.wrap)
                                                    : wrap_fsdp1(asked.tree, settings.policy, settings.wrap);
        }
    }

    std::string write(std::string_view front) const {
        return write_settings(front_end(front),
                              {.model = asked.model, .tree = asked.tree, .job = settings.job, .plan = units});
    }

    std::string refusal(std::string_view front) const {
        try {
            (void)write(front);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    }
};

std::vector<std::string> modules_of(const PolicySpec& policy) {
    std::vector<std::string> out;
    for (const PolicySpec::Call& call : policy.calls) {
        out.insert(out.end(), call.modules.begin(), call.modules.end());
    }
    return out;
}

TEST(WriteSettings, AccelerateReadsBackWhatItWrote) {
    const Planned planned(llama(), "accelerate", sample("accelerate.yaml"));
    const std::string text = planned.write("accelerate");
    EXPECT_THAT(text, HasSubstr("fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"));
    const FrontendPlan again = planned.asked.read("accelerate", text);
    EXPECT_EQ(modules_of(again.policy), modules_of(planned.settings.policy));
    EXPECT_EQ(again.job.activation_checkpointing, planned.settings.job.activation_checkpointing);
    EXPECT_EQ(again.job.param_dtype, DType::bfloat16);
}

TEST(WriteSettings, AThresholdIsFoundForUnitsOfNoClass) {
    const Planned planned(llama(), "accelerate",
                          "distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
                          "  fsdp_min_num_params: 150000000\n  fsdp_use_orig_params: true\n"
                          "  fsdp_sharding_strategy: SHARD_GRAD_OP\n");
    const std::string text = planned.write("accelerate");
    EXPECT_THAT(text, HasSubstr("SIZE_BASED_WRAP"));
    EXPECT_THAT(text, HasSubstr("fsdp_sharding_strategy: SHARD_GRAD_OP"));
    const FrontendPlan again = planned.asked.read("accelerate", text);
    EXPECT_EQ(wrap(planned.asked.tree, again.policy, again.wrap).units.size(), planned.units.units.size());
}

TEST(WriteSettings, WhatAccelerateCannotSayIsRefusedWithTheReason) {
    Planned planned(llama(), "accelerate", sample("accelerate.yaml"));
    planned.settings.job.reduce_dtype = DType::float32;
    EXPECT_THAT(planned.refusal("accelerate"),
                HasSubstr("the dtype of reductions would be bfloat16 and not float32"));
    planned.settings.job.reduce_dtype = DType::bfloat16;
    planned.settings.job.fsdp2.forward_prefetch = {{"model.layers.0", {"model.layers.1"}}};
    EXPECT_THAT(planned.refusal("accelerate"), HasSubstr("prefetched otherwise"));
    planned.settings.job.fsdp2 = {};
    planned.settings.policy.calls.erase(planned.settings.policy.calls.end() - 2);  // norm and head
    planned.draw();
    EXPECT_THAT(planned.refusal("accelerate"), HasSubstr("the root would be no unit"));
    EXPECT_THAT(planned.refusal("DeepSpeed"), HasSubstr("the plan's runtime is fsdp2"));
    EXPECT_THAT(planned.refusal("Trainer"), HasSubstr("are read only"));
}

TEST(WriteSettings, AUnitTooManyIsADifference) {
    Planned planned(
        llama(), "accelerate",
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n");
    EXPECT_THAT(planned.write("accelerate"), HasSubstr("TRANSFORMER_BASED_WRAP"));
    planned.settings.policy = {.kind = PolicySpec::Kind::manual, .calls = {{.modules = {"model.layers.0"}}}};
    planned.draw();
    EXPECT_THAT(planned.refusal("accelerate"), HasSubstr("model.layers.1 would be a unit"));
}

TEST(WriteSettings, TorchtitanReadsBackWhatItWrote) {
    for (const char* reshard : {"default", "always", "never"}) {
        for (const char* checkpoint : {"mode = \"none\"", "mode = \"full\"", "selective_ac_option = \"op\"",
                                       "selective_ac_option = \"3\""}) {
            const Planned planned(
                torchtitan_llama(), "torchtitan",
                std::string(
                    "[parallelism]\ndata_parallel_replicate_degree = 2\nfsdp_reshard_after_forward = \"") +
                    reshard +
                    "\"\n[training]\nglobal_batch_size = 128\nmax_norm = 0\n[activation_checkpoint]\n" +
                    checkpoint + "\n[optimizer]\nimplementation = \"for-loop\"\n");
            const std::string text = planned.write("torchtitan");
            EXPECT_THAT(text, HasSubstr(std::string("fsdp_reshard_after_forward = \"") + reshard));
            const FrontendPlan again = planned.asked.read("torchtitan", text);
            EXPECT_EQ(again.job.mesh, (Mesh{.replicate = 2, .shard = 4}));
            EXPECT_EQ(again.job.accumulate, 2);
            EXPECT_EQ(again.job.clip_norm, std::nullopt);
            EXPECT_EQ(again.job.optimizer, planned.settings.job.optimizer);
            EXPECT_EQ(again.job.activation_checkpointing, planned.settings.job.activation_checkpointing);
        }
    }
}

TEST(WriteSettings, TorchtitanCountsBlocksThatAreListed) {
    Planned planned(torchtitan_llama(), "torchtitan", sample("torchtitan.toml"));
    ActivationCheckpointing& checkpointing = planned.settings.job.activation_checkpointing;
    checkpointing = {.modules = {"layers.1", "layers.3", "layers.5"}};
    EXPECT_THAT(planned.write("torchtitan"), HasSubstr("selective_ac_option = \"2\""));
    checkpointing.modules = {"layers.0", "layers.2", "layers.4"};
    EXPECT_THAT(planned.refusal("torchtitan"), HasSubstr("checkpoint every n-th block"));
}

TEST(WriteSettings, DeepSpeedReadsBackWhatItWrote) {
    for (const char* stage : {"0", "1", "2", "3"}) {
        const Planned planned(
            llama(), "DeepSpeed",
            std::string(
                R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "fp16": {"enabled": true},
                "gradient_clipping": 0.5, "optimizer": {"type": "AdamW"}, "communication_data_type": "fp32",
                "zero_optimization": {"reduce_bucket_size": 1e6, "stage": )") +
                stage + "}}");
        const FrontendPlan again = planned.asked.read("DeepSpeed", planned.write("DeepSpeed"));
        EXPECT_EQ(again.job.runtime, planned.settings.job.runtime);
        EXPECT_EQ(again.job.zero, planned.settings.job.zero);
        EXPECT_EQ(again.job.accumulate, 4);
        EXPECT_EQ(again.job.param_dtype, DType::float16);
        EXPECT_EQ(again.job.reduce_dtype, DType::float32);
        EXPECT_EQ(again.job.clip_norm, 2.0);
        EXPECT_EQ(again.job.optimizer, planned.settings.job.optimizer);
    }
}

}  // namespace
}  // namespace fsdplan
