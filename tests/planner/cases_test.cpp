#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/planner.hpp"
#include "planner/estimates.hpp"

// Questions that people asked in public, with their right answers (tests/cases).
namespace fsdplan {
namespace {

const std::filesystem::path folder = std::filesystem::path(FSDPLAN_TEST_DATA) / "cases";

/// One of the cases: its expectations and its model.
struct Case {
    explicit Case(const std::string& name, std::optional<DType> dtype = std::nullopt)
        : document(read_text(folder / name / "expected.json"), name + "/expected.json"),
          expect(document.root().at("expect")) {
        const std::filesystem::path tree_file = folder / name / "tree.json";
        const bool has_tree = std::filesystem::exists(tree_file);
        model =
            import_model((has_tree ? tree_file : folder / name / "config.json").string(), {.dtype = dtype});
        tree = flatten(model);
    }

    json::Document document;
    json::Value expect;
    ModelGraph model;
    ModuleTree tree;
};

TrainingJob job_on(std::string_view runtime, std::int64_t ranks) {
    TrainingJob job;
    job.runtime = runtime;
    job.mesh = {.replicate = 1, .shard = ranks};
    return job;
}

Cluster gpus(std::int64_t count) {
    return find_cluster({.gpus = count});
}

PolicySpec of_class(const std::string& name) {
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::module_classes;
    spec.classes = {name};
    return spec;
}

PolicySpec by_size(double min_num_params) {
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::recursive;
    spec.members.push_back({.name = "size", .min_num_params = min_num_params});
    return spec;
}

const MemoryTerm& term(const PlanResult& plan, std::string_view name) {
    const auto found = std::ranges::find(plan.memory, name, &MemoryTerm::name);
    if (found == plan.memory.end()) {
        throw std::logic_error("no such term");
    }
    return *found;
}

std::int64_t unsharded_at(const PlanResult& plan, Phase phase, std::string_view unit) {
    for (const Moment& moment : plan.layout.moments) {
        const bool here =
            moment.row >= 0 && plan.wrap
                                       .units[static_cast<std::size_t>(
                                           plan.layout.units[static_cast<std::size_t>(moment.row)].unit)]
                                       .path == unit;
        if (moment.phase == phase && here) {
            return moment.unsharded_bytes;
        }
    }
    throw std::logic_error("no such moment");
}

// 01: every threshold of the list falls into one plan of the sweep, with just these units.
TEST(Case01, SweepOfLlama2) {
    const Case c("01-llama2-7b-size-sweep");
    const SweepQuestion question{.model = c.model,
                                 .tree = c.tree,
                                 .policy = by_size(0),
                                 .jobs = {job_on("fsdp1", 8)},
                                 .cluster = gpus(8)};
    const SweepResult result = sweep(question);
    std::vector<std::int64_t> one_a_layer;
    for (const json::Value expected : c.expect.at("sweep").elements()) {
        const std::int64_t threshold = expected.at("min_num_params").integer();
        const auto plan = std::ranges::find_if(result.plans, [&](const PlanResult& p) {
            return p.threshold_low <= threshold && (!p.threshold_high || threshold <= *p.threshold_high);
        });
        ASSERT_NE(plan, result.plans.end()) << threshold;
        EXPECT_EQ(plan->units, expected.at("fsdp_instances").integer()) << threshold;
        EXPECT_EQ(plan->units_with_parameters, expected.at("units_with_parameters").integer()) << threshold;
        EXPECT_EQ(plan->root_numel, expected.at("root_numel").integer()) << threshold;
        EXPECT_EQ(plan->largest_unit_numel, expected.at("largest_unit_numel").integer()) << threshold;
        std::map<std::string, std::int64_t> want;
        for (const json::Value count : expected.at("units_by_class").members()) {
            want[std::string(count.key())] = count.integer();
        }
        const std::map<std::string, std::int64_t> got(plan->units_by_class.begin(),
                                                      plan->units_by_class.end());
        EXPECT_EQ(got, want) << threshold;
        if (plan->label == "one unit per LlamaDecoderLayer") {
            one_a_layer.push_back(threshold);
        }
    }
    EXPECT_EQ(one_a_layer, std::vector{c.expect.at("only_value_with_one_unit_per_decoder_layer").integer()});
}

TEST(Case01, TheIntervalsCoverEveryThresholdOnce) {
    const Case c("01-llama2-7b-size-sweep");
    const SweepQuestion question{.model = c.model,
                                 .tree = c.tree,
                                 .policy = by_size(0),
                                 .jobs = {job_on("fsdp1", 8)},
                                 .cluster = gpus(8)};
    const SweepResult result = sweep(question);
    std::int64_t next = 0;
    for (const PlanResult& plan : result.plans) {
        EXPECT_EQ(plan.threshold_low, next);
        next = plan.threshold_high.value_or(-2) + 1;
    }
    EXPECT_EQ(next, -1);  // the last one has no end
}

void expect_units(const json::Value& expected, const PlanResult& plan) {
    std::map<std::string, std::int64_t> shards;
    for (const UnitLayout& row : plan.layout.units) {
        shards[plan.wrap.units[static_cast<std::size_t>(row.unit)].path] = row.shard_bytes / 4;
    }
    EXPECT_EQ(shards.size(), expected.size());
    for (const json::Value unit : expected.elements()) {
        const std::string path(unit.at("module").string() == "(root)" ? "" : unit.at("module").string());
        ASSERT_TRUE(shards.contains(path)) << path;
        EXPECT_EQ(shards[path], unit.at("shard_numel").integer()) << path;
        const auto found = std::ranges::find(plan.wrap.units, path, &Unit::path);
        EXPECT_EQ(found->flat_numel, unit.at("flat_numel").integer()) << path;
    }
}

// 03: both halves of a tie become units. Stored twice without original parameters, an error with them.
TEST(Case03, TheSizePolicyBreaksATie) {
    const Case c("03-size-policy-tied-embeddings");
    SweepQuestion question{.model = c.model,
                           .tree = c.tree,
                           .policy = by_size(20000),
                           .sweep_thresholds = false,
                           .jobs = {job_on("fsdp1", 4)},
                           .cluster = gpus(4)};
    const json::Value flat = c.expect.at("use_orig_params_false");
    const PlanResult plan = evaluate(question, units_of(question, question.jobs[0]), question.jobs[0]);
    expect_units(flat.at("units_world4"), plan);
    std::int64_t managed = 0;
    for (const Unit& unit : plan.wrap.units) {
        managed += unit.numel;
    }
    EXPECT_EQ(managed, flat.at("managed_numel").integer());
    EXPECT_TRUE(plan.runs());
    ASSERT_FALSE(plan.wrap.diagnostics.empty());
    EXPECT_EQ(plan.wrap.diagnostics.front().rule, WrapRule::tie_broken);

    question.jobs[0].use_orig_params = true;
    const PlanResult refused = evaluate(question, units_of(question, question.jobs[0]), question.jobs[0]);
    EXPECT_FALSE(refused.runs());

    question.jobs[0].use_orig_params = false;
    question.policy = of_class("Block");
    expect_units(c.expect.at("module_wrap_Block").at("units_world4"),
                 evaluate(question, units_of(question, question.jobs[0]), question.jobs[0]));
}

// 10: rows with fewer of them than ranks.
TEST(Case10, RowsOnEightRanks) {
    const Case c("10-fsdp2-small-first-dimension");
    const auto shape_of = [&](std::string_view path) {
        return c.tree.tensors[at(*c.tree.find_parameter(path))].shape;
    };
    std::int64_t rank = 0;
    for (const json::Value shapes : c.expect.at("local_shape_by_rank").elements()) {
        for (const json::Value local : shapes.members()) {
            const RowShard shard = row_shard(shape_of(local.key()), 8, rank);
            EXPECT_EQ(shard.owned_rows, (*local.elements().begin()).integer())
                << local.key() << " on rank " << rank;
        }
        ++rank;
    }
    EXPECT_EQ(rank, 8);
    std::int64_t padded = 0;
    for (const json::Value local : c.expect.at("padded_shard_shape_every_rank").members()) {
        const RowShard shard = row_shard(shape_of(local.key()), 8, 7);
        EXPECT_EQ(shard.padded_rows, (*local.elements().begin()).integer()) << local.key();
        padded += shard.padded_numel();
    }
    const SweepQuestion question{.model = c.model,
                                 .tree = c.tree,
                                 .policy = {},
                                 .sweep_thresholds = false,
                                 .jobs = {job_on("fsdp2", 8)},
                                 .cluster = gpus(8)};
    const PlanResult plan = evaluate(question, units_of(question, question.jobs[0]), question.jobs[0]);
    EXPECT_EQ(plan.layout.shard_bytes, padded * 4);
    EXPECT_EQ(term(plan, "parameter_shards").bytes.value, padded * 4);
}

// 11: without a policy one unit is the whole model.
TEST(Case11, NoWrappingGathersEverything) {
    const Case c("11-no-wrap-no-saving", DType::bfloat16);
    SweepQuestion question{.model = c.model,
                           .tree = c.tree,
                           .policy = {},
                           .sweep_thresholds = false,
                           .jobs = {job_on("fsdp1", 8)},
                           .cluster = gpus(8)};
    const PlanResult whole = evaluate(question, units_of(question, question.jobs[0]), question.jobs[0]);
    const json::Value expected = c.expect.at("no_wrap");
    EXPECT_EQ(whole.units, expected.at("units").integer());
    EXPECT_EQ(unsharded_at(whole, Phase::forward, ""), expected.at("gathered_param_bytes").integer());
    EXPECT_EQ(whole.layout.units[0].gradient_bytes, expected.at("unsharded_grad_bytes").integer());
    const std::int64_t state = c.expect.at("sharded_state_bytes_per_gpu").integer();
    EXPECT_EQ(whole.layout.shard_bytes + whole.layout.gradient_shard_bytes +
                  term(whole, "optimizer_state").bytes.value,
              state);

    question.policy = of_class("LlamaDecoderLayer");
    const PlanResult layers = evaluate(question, units_of(question, question.jobs[0]), question.jobs[0]);
    const json::Value wrapped = c.expect.at("wrap_LlamaDecoderLayer");
    EXPECT_EQ(layers.units, wrapped.at("units").integer());
    EXPECT_EQ(layers.root_numel, wrapped.at("root_numel").integer());
    EXPECT_EQ(unsharded_at(layers, Phase::forward, "model.layers.7"),
              wrapped.at("gathered_bytes_root_plus_1").integer());
    EXPECT_EQ(unsharded_at(layers, Phase::backward, "model.layers.7"),
              wrapped.at("gathered_bytes_root_plus_2").integer());
    EXPECT_EQ(layers.layout.shard_bytes + layers.layout.gradient_shard_bytes +
                  term(layers, "optimizer_state").bytes.value,
              state);
}

// 16: logits are not sharded.
TEST(Case16, LogitsOfALongSequence) {
    const Case c("16-logits-memory", DType::float32);
    TrainingJob job = job_on("fsdp2", 8);
    job.sequence = 8192;
    const ModelFacts facts = facts_of(c.model, c.tree);
    const LossBytes plain = estimate_loss(facts, job);
    EXPECT_EQ(plain.logits_numel, c.expect.at("logits_elements").integer());
    EXPECT_EQ(plain.logits, exactly(c.expect.at("bf16_bytes").integer()));
    // With the logits at least ten bytes an entry.
    EXPECT_GE(plain.logits.low + plain.loss.low, 10 * plain.logits_numel);
    job.loss = {.kind = Loss::Kind::chunked, .chunks = 8};
    const LossBytes chunked = estimate_loss(facts, job);
    EXPECT_GE(chunked.loss.low, 2 * c.expect.at("fp32_chunk_bytes_8_chunks").integer());
    EXPECT_LT(chunked.loss.high, plain.loss.low);
    const SweepQuestion question{.model = c.model,
                                 .tree = c.tree,
                                 .policy = of_class("LlamaDecoderLayer"),
                                 .sweep_thresholds = false,
                                 .jobs = {job},
                                 .cluster = gpus(8)};
    const PlanResult plan = evaluate(question, units_of(question, job), job);
    EXPECT_EQ(term(plan, "logits").largest_bytes, c.expect.at("bf16_bytes").integer());
}

// 18: what is ignored lies whole on every rank.
TEST(Case18, IgnoredParametersAreReplicated) {
    const Case c("18-ignored-frozen-parameters");
    WrapOptions ignoring;
    for (std::size_t m = 0; m < c.tree.size(); ++m) {
        const auto module = static_cast<ModuleIndex>(m);
        const std::string path = c.tree.path(module);
        for (std::size_t p = 0; p < c.tree.parameters(module).size(); ++p) {
            if (!c.tree.tensors[at(c.tree.parameters(module)[p])].requires_grad) {
                ignoring.ignored_parameters.push_back((path.empty() ? "" : path + ".") +
                                                      c.tree.parameter_names(module)[p]);
            }
        }
    }
    SweepQuestion question{.model = c.model,
                           .tree = c.tree,
                           .policy = of_class("Block"),
                           .sweep_thresholds = false,
                           .wrap = ignoring,
                           .jobs = {job_on("fsdp1", 4)},
                           .cluster = gpus(4)};
    const auto evaluated = [&] {
        return evaluate(question, units_of(question, question.jobs[0]), question.jobs[0]);
    };
    const PlanResult blocks = evaluated();
    expect_units(c.expect.at("block_policy"), blocks);
    EXPECT_EQ(term(blocks, "replicated_parameters").bytes.value,
              4 * c.expect.at("replicated_numel_per_rank").integer());
    EXPECT_EQ(term(blocks, "replicated_gradients").bytes.value, 0);  // they are frozen
    question.policy = by_size(20000);
    expect_units(c.expect.at("size_policy_20000"), evaluated());
}

// 20: all experts count, and 80 GB are not 80 GiB.
TEST(Case20, ASparseModelIsDenseForFsdp) {
    const Case c("20-moe-30b-on-8x80", DType::float32);
    Cluster cluster = gpus(8);
    cluster.budget = {c.document.root().at("settings").at("gpu_memory_bytes").integer()};
    TrainingJob job = job_on("fsdp1", 8);
    job.sequence = 4096;
    const SweepQuestion question{.model = c.model,
                                 .tree = c.tree,
                                 .policy = of_class("Qwen3MoeDecoderLayer"),
                                 .sweep_thresholds = false,
                                 .jobs = {job},
                                 .cluster = cluster};
    const PlanResult plan = evaluate(question, units_of(question, job), job);
    EXPECT_EQ(plan.units, c.expect.at("units").integer());
    EXPECT_EQ(plan.root_numel, c.expect.at("root_numel").integer());
    EXPECT_EQ(plan.largest_unit_numel, c.expect.at("layer_numel").integer());
    const std::int64_t states = plan.layout.shard_bytes + plan.layout.gradient_shard_bytes +
                                term(plan, "optimizer_state").bytes.value;
    EXPECT_EQ(states, c.expect.at("state_bytes_per_gpu").integer());
    const std::int64_t gathered = unsharded_at(plan, Phase::backward, "model.layers.20");
    EXPECT_EQ(gathered, c.expect.at("gathered_root_plus_2_layers_bytes").integer());
    EXPECT_EQ(cluster.budget.count - states - gathered, c.expect.at("left_for_activations_bytes").integer());
    // "model states and gathered units fit; activations decide"
    EXPECT_FALSE(plan.fits.has_value());
}

}  // namespace
}  // namespace fsdplan
