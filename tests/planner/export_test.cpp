#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "fsdplan/planner.hpp"

namespace fsdplan {
namespace {

using Mode = ActivationCheckpointing::Mode;

/// What a GPU of 512 needs for a step of 8192 tokens.
double allocated_bytes(const std::string& file, std::optional<DType> dtype, Mode checkpointing) {
    const ModelGraph model = import_model(file, {.dtype = dtype});
    const ModuleTree tree = flatten(model);
    TrainingJob job;
    job.runtime = "fsdp2";
    job.mesh = {.replicate = 1, .shard = 512};
    job.sequence = 8192;
    job.activation_checkpointing.mode = checkpointing;
    const std::array<std::string, 1> policy{"blocks"};
    const SweepQuestion question{.model = model,
                                 .tree = tree,
                                 .policy = parse_policy(policy, tree),
                                 .sweep_thresholds = false,
                                 .jobs = {job},
                                 .cluster = find_cluster({.gpu = "h100-sxm", .gpus = 512})};
    return static_cast<double>(simulate_step(question).plan.allocated_bytes);
}

// Llama-3.1-405B, exported by `python -m fsdplan export --hf` and from its configuration alone. The losses
// differ: the export's is the mean square of the logits.
TEST(Export, AnswersAsTheConfigurationDoes) {
    for (const Mode mode : {Mode::none, Mode::blocks}) {
        const double exported =
            allocated_bytes(FSDPLAN_TEST_DATA "/bench/llama3.1-405b.export.json.gz", std::nullopt, mode);
        const double configured = allocated_bytes("llama3.1-405b", DType::bfloat16, mode);
        EXPECT_LT(std::abs(exported / configured - 1.0), 0.005) << exported << " and " << configured;
    }
}

}  // namespace
}  // namespace fsdplan
