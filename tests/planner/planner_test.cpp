#include "fsdplan/planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/estimates.hpp"
#include "planner/evaluation.hpp"
#include "support/model_in_code.hpp"

namespace fsdplan {
namespace {

struct Model {
    explicit Model(ModelGraph g) : graph(std::move(g)), tree(flatten(graph)) {}
    ModelGraph graph;
    ModuleTree tree;
};

TrainingJob job_on(std::int64_t ranks, std::string_view runtime = "fsdp1") {
    TrainingJob job;
    job.runtime = runtime;
    job.mesh = {.replicate = 1, .shard = ranks};
    job.sequence = 128;
    return job;
}

PolicySpec size() {
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::recursive;
    spec.members.push_back({.name = "size"});
    return spec;
}

SweepQuestion question_about(const Model& model, std::vector<TrainingJob> jobs, std::int64_t gpus) {
    return {.model = model.graph,
            .tree = model.tree,
            .policy = size(),
            .jobs = std::move(jobs),
            .cluster = find_cluster({.gpus = gpus})};
}

const MemoryTerm& term(const PlanResult& plan, std::string_view name) {
    return *std::ranges::find(plan.memory, name, &MemoryTerm::name);
}

// Embedding, `layers` gated blocks with a norm, and a head.
Model small_language_model(int layers) {
    test::ModelInCode code("toys.LM");
    code.child(code.root(), "embed", "torch.nn.modules.sparse.Embedding", {{"weight", {1000, 64}}});
    const ModuleIndex list = code.child(code.root(), "layers", "torch.nn.modules.container.ModuleList");
    for (int i = 0; i < layers; ++i) {
        const ModuleIndex block = code.child(list, std::to_string(i), "toys.Block");
        code.child(block, "norm", "toys.RMSNorm", {{"weight", {64}}});
        const ModuleIndex mlp = code.child(block, "mlp", "toys.MLP");
        code.child(mlp, "gate", test::linear, {{"weight", {256, 64}}});
        code.child(mlp, "up", test::linear, {{"weight", {256, 64}}});
        code.child(mlp, "down", test::linear, {{"weight", {64, 256}}});
    }
    code.child(code.root(), "head", test::linear, {{"weight", {1000, 64}}});
    return Model(code.graph());
}

TEST(Sweep, TheTermsAddUpToTheProcess) {
    const Model model = small_language_model(3);
    const SweepResult result = sweep(question_about(model, {job_on(8)}, 8));
    EXPECT_GT(result.plans.size(), 2U);
    for (const PlanResult& plan : result.plans) {
        std::int64_t sum = 0;
        for (const MemoryTerm& line : plan.memory) {
            EXPECT_LE(line.bytes.low, line.bytes.value) << line.name;
            EXPECT_GE(line.bytes.high, line.bytes.value) << line.name;
            EXPECT_GE(line.largest_bytes, line.bytes.value) << line.name;
            EXPECT_EQ(line.exact, line.bytes.low == line.bytes.high && line.exact) << line.name;
            EXPECT_FALSE(line.note.empty()) << line.name;
            sum += line.bytes.value;
        }
        EXPECT_EQ(sum, plan.process_bytes.value);
        EXPECT_LE(plan.process_bytes.low, plan.process_bytes.value);
        EXPECT_GE(plan.process_bytes.high, plan.process_bytes.value);
        EXPECT_LE(plan.allocated_bytes, plan.reserved_bytes);
        EXPECT_LE(plan.reserved_bytes, plan.process_bytes.value);
        EXPECT_LE(plan.exposed_ns.value, plan.step_ns.value);
    }
}

TEST(Sweep, NamesWhatLiesOutsideTheAllocator) {
    const Model model = small_language_model(1);
    const SweepResult result = sweep(question_about(model, {job_on(8)}, 8));
    for (const char* name : {"cuda_context", "nccl_buffers", "workspaces", "allocator_slack"}) {
        EXPECT_GT(term(result.plans.front(), name).bytes.value, 0) << name;
    }
}

TEST(Sweep, ABudgetInsideTheIntervalIsNeitherYesNorNo) {
    const Model model = small_language_model(2);
    SweepQuestion question = question_about(model, {job_on(8)}, 8);
    const PlanResult plan = sweep(question).plans.front();
    const auto fits = [&](std::int64_t budget) {
        question.cluster.budget = {budget};
        return sweep(question).plans.front().fits;
    };
    EXPECT_EQ(fits(plan.process_bytes.high), true);
    EXPECT_EQ(fits(plan.process_bytes.high - 1), std::nullopt);
    EXPECT_EQ(fits(plan.process_bytes.low), std::nullopt);
    EXPECT_EQ(fits(plan.process_bytes.low - 1), false);
}

TEST(Sweep, RecommendsOnlyWhatFitsWithCertainty) {
    const Model model = small_language_model(2);
    SweepQuestion question = question_about(model, {job_on(8)}, 8);
    const SweepResult roomy = sweep(question);
    ASSERT_TRUE(roomy.recommended.has_value());
    EXPECT_EQ(roomy.plans[*roomy.recommended].fits, true);
    EXPECT_EQ(roomy.verdict.fits, true);
    question.cluster.budget = 1_MiB;
    const SweepResult tight = sweep(question);
    EXPECT_FALSE(tight.recommended.has_value());
    EXPECT_EQ(tight.verdict.fits, false);
    EXPECT_THAT(tight.verdict.text, testing::StartsWith("does not fit"));
}

TEST(Sweep, ChangesAreEvaluated) {
    const Model model = small_language_model(12);
    TrainingJob job = job_on(8);
    job.batch = 64;
    job.sequence = 4096;
    SweepQuestion question = question_about(model, {job}, 8);
    question.cluster.budget = 4_GiB;
    const SweepResult result = sweep(question);
    ASSERT_FALSE(result.verdict.next.empty());
    for (const Change& change : result.verdict.next) {
        EXPECT_THAT(change.change, testing::StartsWith("--"));
        EXPECT_THAT(change.effect, testing::HasSubstr("less at the peak"));
    }
}

TEST(Sweep, ListsMultiply) {
    const Model model = small_language_model(1);
    TrainingJob more = job_on(8);
    more.batch = 4;
    const SweepResult both = sweep(question_about(model, {job_on(8), more}, 8));
    const SweepResult one = sweep(question_about(model, {job_on(8)}, 8));
    EXPECT_EQ(both.plans.size(), 2 * one.plans.size());
    EXPECT_EQ(both.plans.back().job, 1U);
}

TEST(Sweep, DdpIsOnePlanWithoutUnits) {
    const Model model = small_language_model(2);
    TrainingJob job = job_on(1, "ddp");
    job.strategy = Strategy::no_shard;
    job.mesh = {.replicate = 8, .shard = 1};
    const SweepResult result = sweep(question_about(model, {job}, 8));
    ASSERT_EQ(result.plans.size(), 1U);
    EXPECT_EQ(term(result.plans[0], "parameter_shards").bytes.value, model.tree.numel[0] * 4);
}

// Calls under FSDP1 once made units without flat parameters and a total with nothing sharded.
TEST(Sweep, CallsUnderFsdp1AreWrappedByHand) {
    const Model model = small_language_model(3);
    SweepQuestion question = question_about(model, {job_on(8)}, 8);
    question.policy = {};
    question.policy.kind = PolicySpec::Kind::calls;
    question.policy.calls.push_back({.modules = {"layers.0"}});
    question.sweep_thresholds = false;
    const PlanResult plan = sweep(question).plans.front();
    EXPECT_EQ(plan.units, 2);  // the block and the root
    EXPECT_EQ(term(plan, "parameter_shards").bytes, exactly(model.tree.numel[0] * 4 / 8));
}

TEST(Sweep, Fsdp2TakesTheSameBoundaries) {
    const Model model = small_language_model(3);
    const SweepResult flat = sweep(question_about(model, {job_on(8)}, 8));
    const SweepResult rows = sweep(question_about(model, {job_on(8, "fsdp2")}, 8));
    ASSERT_EQ(flat.plans.size(), rows.plans.size());
    for (std::size_t i = 0; i < flat.plans.size(); ++i) {
        EXPECT_EQ(flat.plans[i].units, rows.plans[i].units);
        EXPECT_EQ(flat.plans[i].label, rows.plans[i].label);
        EXPECT_TRUE(rows.plans[i].runs());
    }
}

TEST(Sweep, MoreRanksNeverNeedMoreShards) {
    const Model model = small_language_model(2);
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t ranks : {1, 2, 4, 8, 16, 32}) {
        SweepQuestion question = question_about(model, {job_on(ranks)}, ranks);
        const PlanResult plan = sweep(question).plans.back();
        const std::int64_t shards = term(plan, "parameter_shards").bytes.value;
        EXPECT_LE(shards, before);
        before = shards;
        if (ranks == 1) {
            EXPECT_EQ(plan.sent_bytes, 0);
            EXPECT_EQ(term(plan, "nccl_buffers").bytes.value, 0);
        }
    }
}

// Sums over 128 tokens in bf16: norm 4 + 2 bytes, then gate's input, gate and up, the activation, the
// product.
TEST(EstimateActivations, OfAGatedBlock) {
    const Model model = small_language_model(1);
    const ModelFacts facts = facts_of(model.graph, model.tree);
    const Activations activations = estimate_activations(model.tree, facts, job_on(8));
    const std::int64_t per_token =
        64 * 6 + 64 * 2 + 2 * 256 * 2 + 256 * 2 + 256 * 2 + 64 * 2;  // the last: head's input
    EXPECT_EQ(activations.kept.all().value, 128 * per_token);
}

TEST(EstimateActivations, CheckpointingKeepsTheInputsOfBlocks) {
    const Model model = small_language_model(4);
    const ModelFacts facts = facts_of(model.graph, model.tree);
    TrainingJob job = job_on(8);
    const Estimate all = estimate_activations(model.tree, facts, job).kept.all();
    job.activation_checkpointing.mode = ActivationCheckpointing::Mode::blocks;
    const Activations blocks = estimate_activations(model.tree, facts, job);
    EXPECT_EQ(blocks.recomputed.size(), 4U);
    EXPECT_EQ(blocks.kept.all().value, 128 * (4 * 64 * 2 + 64 * 2));
    job.activation_checkpointing = {.mode = ActivationCheckpointing::Mode::every, .every = 2};
    EXPECT_EQ(estimate_activations(model.tree, facts, job).recomputed.size(), 2U);
    job.activation_checkpointing = {.mode = ActivationCheckpointing::Mode::selective};
    const Estimate selective = estimate_activations(model.tree, facts, job).kept.all();
    EXPECT_LT(selective.value, all.value);
    EXPECT_GT(selective.value, blocks.kept.all().value);
}

TEST(EstimateActivations, NothingIsKeptInFrontOfTheFirstTrainableParameter) {
    Model model = small_language_model(4);
    const Estimate whole =
        estimate_activations(model.tree, facts_of(model.graph, model.tree), job_on(8)).kept.all();
    for (Tensor& tensor : model.graph.tensors) {
        tensor.requires_grad =
            tensor.shape == std::vector<std::int64_t>{1000, 64} && &tensor == &model.graph.tensors.back();
    }
    model.tree = flatten(model.graph);
    const Estimate head =
        estimate_activations(model.tree, facts_of(model.graph, model.tree), job_on(8)).kept.all();
    EXPECT_EQ(head.value, 128 * 64 * 2);
    EXPECT_LT(head.value, whole.value);
}

TEST(Label, SaysWhatIsLeftOver) {
    const Model model = small_language_model(3);
    const SweepResult result = sweep(question_about(model, {job_on(8)}, 8));
    EXPECT_EQ(result.plans.back().label, "no inner wrapping");
    std::vector<std::string> labels;
    for (const PlanResult& plan : result.plans) {
        labels.push_back(plan.label);
    }
    EXPECT_THAT(labels, testing::Contains(testing::HasSubstr("one unit per Block")));
}

TEST(Code, NamesAReadableThresholdInsideTheInterval) {
    const Model model = small_language_model(3);
    const SweepResult result = sweep(question_about(model, {job_on(8)}, 8));
    for (const PlanResult& plan : result.plans) {
        const std::size_t begin = plan.code.fsdp1.find("min_num_params=");
        if (begin == std::string::npos) {
            EXPECT_THAT(plan.code.fsdp1, testing::HasSubstr("ModuleWrapPolicy")) << plan.label;
            continue;
        }
        std::string digits;
        for (std::size_t i = begin + 15; i < plan.code.fsdp1.size() && plan.code.fsdp1[i] != ')'; ++i) {
            digits += plan.code.fsdp1[i] == '_' ? "" : std::string(1, plan.code.fsdp1[i]);
        }
        const std::int64_t number = std::stoll(digits);
        EXPECT_GE(number, plan.threshold_low);
        EXPECT_LE(number, plan.threshold_high.value_or(number));
        EXPECT_THAT(plan.code.fsdp2, testing::HasSubstr("fully_shard(model, **sharding)"));
    }
}

TEST(EstimateStep, MoreWorkTakesLonger) {
    const Model model = small_language_model(4);
    const auto step = [&](const TrainingJob& job) {
        return sweep(question_about(model, {job}, 8)).plans.back().step_ns.value;
    };
    TrainingJob job = job_on(8);
    job.batch = 64;
    job.sequence = 2048;
    const std::int64_t one = step(job);
    job.batch = 128;
    EXPECT_GT(step(job), one);
    job.batch = 64;
    job.activation_checkpointing.mode = ActivationCheckpointing::Mode::blocks;
    EXPECT_GT(step(job), one);
    job.activation_checkpointing = {};
    job.accumulate = 3;
    EXPECT_GT(step(job), 2 * one);
}

TEST(UsualMesh, HybridShardsInsideANode) {
    const Cluster cluster = find_cluster({.gpus = 32});
    EXPECT_EQ(usual_mesh(runtime("fsdp1"), Strategy::full_shard, cluster),
              (Mesh{.replicate = 1, .shard = 32}));
    EXPECT_EQ(usual_mesh(runtime("fsdp1"), Strategy::hybrid_shard, cluster),
              (Mesh{.replicate = 4, .shard = 8}));
    EXPECT_EQ(usual_mesh(runtime("ddp"), Strategy::no_shard, cluster), (Mesh{.replicate = 32, .shard = 1}));
}

}  // namespace
}  // namespace fsdplan
