#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "fsdplan/planner.hpp"
#include "planner/evaluation.hpp"
#include "support/model_in_code.hpp"

// The code of some plans of a small model. What is expected stands in code/NAME.RUNTIME.py, and
// tests/live/run_code.py runs it with PyTorch.
namespace fsdplan {
namespace {

const std::filesystem::path folder = std::filesystem::path(FSDPLAN_TEST_DATA) / "planner" / "code";

// Embedding, four blocks of a norm and an mlp of two layers, and a head.
ModelGraph toys() {
    test::ModelInCode code("toys.LM");
    code.child(code.root(), "embed", "torch.nn.modules.sparse.Embedding", {{"weight", {32, 8}}});
    const ModuleIndex list = code.child(code.root(), "layers", "torch.nn.modules.container.ModuleList");
    for (int i = 0; i < 4; ++i) {
        const ModuleIndex block = code.child(list, std::to_string(i), "toys.Block");
        code.child(block, "norm", "torch.nn.modules.normalization.LayerNorm",
                   {{"weight", {8}}, {"bias", {8}}});
        const ModuleIndex mlp = code.child(block, "mlp", "toys.MLP");
        code.child(mlp, "up", test::linear, {{"weight", {16, 8}}});
        code.child(mlp, "down", test::linear, {{"weight", {8, 16}}});
    }
    code.child(code.root(), "head", test::linear, {{"weight", {32, 8}}});
    return code.graph();
}

std::string text_of(const std::filesystem::path& file) {
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
}

PolicySpec::Call call(std::vector<std::string> modules, const std::string& reshard = "") {
    PolicySpec::Call out{.modules = std::move(modules)};
    out.list = out.modules.size() > 1;
    if (!reshard.empty()) {
        out.arguments.emplace_back("reshard_after_forward", reshard);
    }
    return out;
}

std::vector<PolicySpec::Call> blocks_and_root() {
    return {call({"layers.0"}), call({"layers.1"}), call({"layers.2"}), call({"layers.3"}), call({""})};
}

TrainingJob job_of(std::string_view runtime) {
    TrainingJob job;
    job.runtime = runtime;
    job.mesh = {.replicate = 1, .shard = 8};
    job.sequence = 16;
    job.param_dtype.reset();
    return job;
}

/// "" for a runtime that cannot say the plan: there is no file then.
void expect_code(const std::string& name, const std::vector<PolicySpec::Call>& calls,
                 const TrainingJob& job) {
    const ModelGraph graph = toys();
    const ModuleTree tree = flatten(graph);
    SweepQuestion question{.model = graph, .tree = tree, .sweep_thresholds = false, .jobs = {job}};
    question.policy.kind = PolicySpec::Kind::calls;
    question.policy.calls = calls;
    PlanResult plan;
    plan.wrap = wrap_fsdp2(tree, question.policy, wrap_options(job));
    ASSERT_TRUE(plan.wrap.complete);
    const PlanCode code = code_of(question, plan, job);
    EXPECT_EQ(code.fsdp1, text_of(folder / (name + ".fsdp1.py"))) << name;
    EXPECT_EQ(code.fsdp2, text_of(folder / (name + ".fsdp2.py"))) << name;
}

TEST(Code, NamesUnitsThatNoClassTellsApart) {
    TrainingJob job = job_of("fsdp1");
    job.use_orig_params = true;
    job.backward_prefetch = BackwardPrefetch::post;
    job.limit_all_gathers = false;
    expect_code("some_blocks", {call({"layers.0"}), call({"layers.2.mlp"}), call({"layers.3"}), call({""})},
                job);
}

TEST(Code, SaysReshardsOfUnitsOneByOne) {
    expect_code("reshard",
                {call({"layers.0"}, "false"), call({"layers.1.mlp"}, "4"), call({"layers.1"}, "true"),
                 call({"layers.2"}, "false"), call({"layers.3"}, "true"), call({""})},
                job_of("fsdp2"));
}

TEST(Code, SaysAReshardOnceWhenAllUnitsShareIt) {
    TrainingJob job = job_of("fsdp2");
    job.reshard_after_forward = 2;
    expect_code("one_reshard", blocks_and_root(), job);
}

TEST(Code, CallsAGroupAsAList) {
    expect_code("group",
                {call({"layers.0"}), call({"layers.1"}), call({"layers.2.norm", "layers.2.mlp"}, "false"),
                 call({"layers.2"}), call({""})},
                job_of("fsdp2"));
}

TEST(Code, ListsPrefetches) {
    TrainingJob job = job_of("fsdp2");
    job.fsdp2.forward_prefetch = {{"layers.0", {"layers.1", "layers.2"}},
                                  {"layers.1", {"layers.2", "layers.3"}},
                                  {"layers.2", {"layers.3"}}};
    job.fsdp2.backward_prefetch = {{"layers.3", {"layers.2", "layers.1"}}, {"layers.1", {"layers.0"}}};
    expect_code("prefetch", blocks_and_root(), job);
}

TEST(Code, ListsCheckpointedModules) {
    TrainingJob job = job_of("fsdp2");
    job.activation_checkpointing.modules = {"layers.0", "layers.2"};
    expect_code("checkpoint_some", blocks_and_root(), job);
    job.activation_checkpointing.placement = ActivationCheckpointing::Placement::outside;
    expect_code("checkpoint_outside", blocks_and_root(), job);
    job.activation_checkpointing.placement = ActivationCheckpointing::Placement::forward;
    expect_code("checkpoint_forward", blocks_and_root(), job);
}

TEST(Code, PutsUnitsAroundTheCheckpointsOfAClass) {
    TrainingJob job = job_of("fsdp2");
    job.activation_checkpointing.mode = ActivationCheckpointing::Mode::blocks;
    expect_code("checkpoint_blocks", blocks_and_root(), job);
    job.activation_checkpointing.mode = ActivationCheckpointing::Mode::selective;
    expect_code("checkpoint_selective", blocks_and_root(), job);
}

TEST(Code, IsLeftOutWhereACheckpointAroundUnitsHasNone) {
    TrainingJob job = job_of("fsdp2");
    job.activation_checkpointing = {.placement = ActivationCheckpointing::Placement::outside,
                                    .modules = {"layers.0.mlp"}};
    expect_code("nothing", blocks_and_root(), job);
}

}  // namespace
}  // namespace fsdplan
