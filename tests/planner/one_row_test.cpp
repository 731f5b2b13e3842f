#include <gtest/gtest.h>

#include "fsdplan/planner.hpp"
#include "model/importer.hpp"

namespace fsdplan {
namespace {

// With one row of logits the loss's gradient is the gradient of the classifier's bias, as autograd takes it:
// the memory is computed before the classifier's own backward.
TEST(OneRow, TheLossComputesTheGradientOfABias) {
    const ModelGraph model = read_hf_config(
        R"({"model_type": "bert", "architectures": ["BertForSequenceClassification"], "hidden_size": 64,
            "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 512,
            "num_labels": 3})",
        "config.json", {.dtype = DType::float32});
    const ModuleTree tree = flatten(model);
    for (const RuntimeInfo* info : runtimes()) {
        TrainingJob job;
        job.runtime = info->name;
        job.strategy = info->strategies.front();
        job.mesh = {.replicate = 1, .shard = 1};
        job.batch = 1;
        job.sequence = 16;
        const SweepQuestion question{.model = model,
                                     .tree = tree,
                                     .policy = {},
                                     .sweep_thresholds = false,
                                     .jobs = {job},
                                     .cluster = find_cluster({.gpu = "h100-sxm", .gpus = 1})};
        EXPECT_GT(simulate_step(question).plan.allocated_bytes, 0) << info->name;
    }
}

}  // namespace
}  // namespace fsdplan
