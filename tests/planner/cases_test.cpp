#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/file.hpp"
#include "base/json.hpp"
#include "fsdplan/decode.hpp"
#include "fsdplan/planner.hpp"
#include "planner/estimates.hpp"
#include "support/schedule_bytes.hpp"

// Questions that people asked in public, with their right answers (tests/cases).
namespace fsdplan {
namespace {

using testing::HasSubstr;

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

/// Parameters, gradients and optimizer states of one device while the optimizer steps, as they are requested:
/// what an allocator adds to small blocks is left out.
std::int64_t state_bytes(const Schedule& schedule) {
    using enum Category;
    std::map<std::int32_t, Category> live;
    std::int64_t bytes = 0;
    for (const Op& op : schedule.ops) {
        if (op.kind == OpKind::allocate) {
            live[op.target] = schedule.buffers[static_cast<std::size_t>(op.target)].category;
        } else if (op.kind == OpKind::relabel) {
            live[op.target] = static_cast<Category>(op.detail);
        } else if (op.kind == OpKind::free) {
            live.erase(op.target);
        } else if (op.kind == OpKind::mark && static_cast<Mark>(op.detail) == Mark::optimizer_step) {
            bytes = 0;  // of this step: in the first one there are no states yet
            for (const auto& [target, category] : live) {
                const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(target)];
                const bool counts = category == shard || category == gradient_shard || category == gradient ||
                                    category == optimizer;
                bytes += counts && !buffer.on_host ? buffer.bytes : 0;  // step counters lie on the host
            }
        }
    }
    return bytes;
}

/// The same as the memory table has it.
std::int64_t shown_state_bytes(const PlanResult& plan) {
    std::int64_t bytes = 0;
    for (const char* name : {"parameter_shards", "gradient_shards", "optimizer_state"}) {
        bytes += term(plan, name).largest_bytes;
    }
    return bytes;
}

/// Calls a step by dtype and by the elements of the full size.
using Calls = std::map<std::pair<DType, std::int64_t>, std::int64_t>;
Calls calls_of(const PlanResult& plan, CollectiveKind kind) {
    Calls calls;
    for (const Collective& call : plan.collectives) {
        if (call.kind == kind) {
            calls[{call.dtype, std::max(call.input_numel, call.output_numel)}] += call.count;
        }
    }
    return calls;
}

/// The schedule that a plan's memory comes from.
Schedule schedule_of(const SweepQuestion& question, const PlanResult& plan) {
    return lower({question.tree, plan.wrap, question.jobs[plan.job]});
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

void expect_units(const json::Value& expected, const SweepQuestion& question) {
    const PlanResult plan = evaluate(question, units_of(question, question.jobs[0]), question.jobs[0]);
    std::map<std::string, std::int64_t> shards;
    for (const Unit& unit : plan.wrap.units) {
        shards[unit.path] = 0;
    }
    for (const Buffer& buffer : schedule_of(question, plan).buffers) {
        if (buffer.category == Category::shard) {
            shards[plan.wrap.units.at(static_cast<std::size_t>(buffer.unit)).path] += buffer.bytes / 4;
        }
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
    expect_units(flat.at("units_world4"), question);
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
    expect_units(c.expect.at("module_wrap_Block").at("units_world4"), question);
}

/// The largest buffer that each unit's gradients ever have, by the unit's path.
std::map<std::string, std::int64_t> gradient_buffers(const Schedule& schedule) {
    std::map<std::string, std::int64_t> largest;
    for (const Op& op : schedule.ops) {
        if (op.kind != OpKind::allocate) {
            continue;
        }
        const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(op.target)];
        if (buffer.category == Category::gradient && buffer.unit >= 0) {
            std::int64_t& most = largest[schedule.units[static_cast<std::size_t>(buffer.unit)]];
            most = std::max(most, buffer.bytes);
        }
    }
    return largest;
}

LoraOptions lora_in(const std::string& name) {
    const json::Document document(read_text(folder / name / "lora.json"), name + "/lora.json");
    LoraOptions options;
    options.rank = static_cast<int>(document.root().at("r").integer());
    options.targets = document.root().at("target_modules").strings();
    return options;
}

// 07: a flat parameter has one gradient, and the frozen members are part of it.
TEST(Case07, AdaptersInsideAFrozenLayerReduceAllOfIt) {
    const std::string name = "07-mixtral-lora-gradient-buffer";
    const Case c(name, DType::float32);
    const ModelGraph model = with_lora(c.model, lora_in(name));
    const ModuleTree tree = flatten(model);
    TrainingJob job = job_on("fsdp1", 8);
    job.use_orig_params = true;
    SweepQuestion question{.model = model,
                           .tree = tree,
                           .policy = of_class("MixtralDecoderLayer"),
                           .sweep_thresholds = false,
                           .jobs = {job},
                           .cluster = gpus(8)};
    const WrapPlan layers = units_of(question, job);
    const std::int64_t adapters = c.expect.at("lora_numel_per_layer").integer();
    const std::int64_t whole = c.expect.at("grad_numel_per_unit").integer();
    EXPECT_EQ(whole, adapters + c.expect.at("layer_frozen_numel").integer());

    const auto buffers = gradient_buffers(lower({.tree = tree, .plan = layers, .job = job}));
    EXPECT_EQ(buffers.size(), 32U);  // the root is frozen
    for (const auto& [unit, bytes] : buffers) {
        EXPECT_EQ(bytes, c.expect.at("grad_bytes_bf16").integer()) << unit;
    }
    EXPECT_EQ(c.expect.at("warning_expected").boolean(), !layers.diagnostics.empty());
    EXPECT_EQ(layers.diagnostics.size(), buffers.size());
    for (const Diagnostic& d : layers.diagnostics) {
        EXPECT_EQ(d.rule, WrapRule::frozen_with_trainable);
        EXPECT_TRUE(buffers.contains(d.unit)) << d.unit;
        EXPECT_THAT(d.message, HasSubstr("a gradient of " + std::to_string(whole) + " elements for " +
                                         std::to_string(adapters) + " trainable ones"));
    }

    const PlanResult plan = evaluate(question, layers, job);
    EXPECT_TRUE(plan.runs());
    EXPECT_EQ(calls_of(plan, CollectiveKind::reduce_scatter), (Calls{{{DType::bfloat16, whole}, 32}}));
    EXPECT_GE(term(plan, "unsharded_gradients").largest_bytes, c.expect.at("grad_bytes_bf16").integer());
}

TEST(Case07, AdaptersInUnitsOfTheirOwnReduceThemselvesOnly) {
    const std::string name = "07-mixtral-lora-gradient-buffer";
    const Case c(name, DType::float32);
    const ModelGraph model = with_lora(c.model, lora_in(name));
    const ModuleTree tree = flatten(model);
    TrainingJob job = job_on("fsdp1", 8);
    job.use_orig_params = true;
    const std::vector<std::string> apart{"names:*.lora_?.default", "transformer:MixtralDecoderLayer"};
    const SweepQuestion question{.model = model,
                                 .tree = tree,
                                 .policy = parse_policy(apart, tree),
                                 .sweep_thresholds = false,
                                 .jobs = {job},
                                 .cluster = gpus(8)};
    const WrapPlan plan = units_of(question, job);
    EXPECT_TRUE(plan.diagnostics.empty());
    std::int64_t of_one_layer = 0;
    for (const auto& [unit, bytes] : gradient_buffers(lower({.tree = tree, .plan = plan, .job = job}))) {
        EXPECT_THAT(unit, HasSubstr(".lora_"));
        of_one_layer += unit.find(".layers.7.") != std::string::npos ? bytes : 0;
    }
    EXPECT_EQ(of_one_layer, c.expect.at("ideal_grad_bytes_bf16").integer());
    const PlanResult result = evaluate(question, plan, job);
    std::int64_t reduced = 0;
    for (const auto& [call, count] : calls_of(result, CollectiveKind::reduce_scatter)) {
        reduced += call.second * count;
    }
    EXPECT_EQ(reduced, 32 * c.expect.at("lora_numel_per_layer").integer());
    EXPECT_LT(term(result, "unsharded_gradients").largest_bytes,
              c.expect.at("grad_bytes_bf16").integer() / 100);
}

// 10: rows with fewer of them than ranks.
TEST(Case10, RowsOnEightRanks) {
    const Case c("10-fsdp2-small-first-dimension");
    const auto shape_of = [&](std::string_view path) {
        return c.tree.tensors[at(*c.tree.find_parameter(path))].shape;
    };
    const auto numbers = [](const json::Value& list) {
        std::vector<std::int64_t> out;
        for (const json::Value number : list.elements()) {
            out.push_back(number.integer());
        }
        return out;
    };
    const auto with_rows = [&](std::string_view path, std::int64_t rows) {
        std::vector<std::int64_t> shape = shape_of(path);
        shape.front() = rows;
        return shape;
    };
    std::int64_t rank = 0;
    for (const json::Value shapes : c.expect.at("local_shape_by_rank").elements()) {
        for (const json::Value local : shapes.members()) {
            const RowShard shard = row_shard(shape_of(local.key()), 8, rank);
            EXPECT_EQ(with_rows(local.key(), shard.owned_rows), numbers(local))
                << local.key() << " on rank " << rank;
        }
        ++rank;
    }
    EXPECT_EQ(rank, 8);
    std::int64_t padded = 0;
    for (const json::Value local : c.expect.at("padded_shard_shape_every_rank").members()) {
        const RowShard shard = row_shard(shape_of(local.key()), 8, 7);
        EXPECT_EQ(with_rows(local.key(), shard.padded_rows), numbers(local)) << local.key();
        padded += shard.padded_numel();
    }
    const SweepQuestion question{.model = c.model,
                                 .tree = c.tree,
                                 .policy = {},
                                 .sweep_thresholds = false,
                                 .jobs = {job_on("fsdp2", 8)},
                                 .cluster = gpus(8)};
    const PlanResult plan = evaluate(question, units_of(question, question.jobs[0]), question.jobs[0]);
    EXPECT_EQ(term(plan, "parameter_shards").bytes.value, padded * 4);
}

// 11: without a policy one unit is the whole model.
TEST(Case11, NoWrappingGathersEverything) {
    const Case c("11-no-wrap-no-saving", DType::bfloat16);
    EXPECT_EQ(c.tree.numel[0], c.expect.at("params").integer());
    SweepQuestion question{.model = c.model,
                           .tree = c.tree,
                           .policy = {},
                           .sweep_thresholds = false,
                           .jobs = {job_on("fsdp1", 8)},
                           .cluster = gpus(8)};
    const PlanResult whole = evaluate(question, units_of(question, question.jobs[0]), question.jobs[0]);
    const json::Value expected = c.expect.at("no_wrap");
    EXPECT_EQ(whole.units, expected.at("units").integer());
    const Schedule one = schedule_of(question, whole);
    EXPECT_EQ(test::most_bytes(one, Category::unsharded, "", Mark::forward_begin, Mark::forward_end),
              expected.at("gathered_param_bytes").integer());
    EXPECT_EQ(gradient_buffers(one).at(""), expected.at("unsharded_grad_bytes").integer());
    const std::int64_t state = c.expect.at("sharded_state_bytes_per_gpu").integer();
    EXPECT_EQ(state_bytes(one), state);

    question.policy = of_class("LlamaDecoderLayer");
    const PlanResult layers = evaluate(question, units_of(question, question.jobs[0]), question.jobs[0]);
    const json::Value wrapped = c.expect.at("wrap_LlamaDecoderLayer");
    EXPECT_EQ(layers.units, wrapped.at("units").integer());
    EXPECT_EQ(layers.root_numel, wrapped.at("root_numel").integer());
    EXPECT_EQ(std::ranges::count(layers.wrap.units, wrapped.at("layer_numel").integer(), &Unit::numel), 32);
    const Schedule units = schedule_of(question, layers);
    EXPECT_EQ(test::most_bytes(units, Category::unsharded, "model.layers.7", Mark::forward_begin,
                               Mark::forward_end),
              wrapped.at("gathered_bytes_root_plus_1").integer());
    EXPECT_EQ(test::most_bytes(units, Category::unsharded, "model.layers.7", Mark::pre_backward,
                               Mark::post_backward),
              wrapped.at("gathered_bytes_root_plus_2").integer());
    EXPECT_EQ(state_bytes(units), state);
}

// 13: sizes tell the unit and the ranks; the model, not the log, tells the units.
TEST(Case13, SizesOfATimeout) {
    const std::string name = "13-decode-nccl-line";
    const Case c(name);
    const std::string file = (folder / name / "collectives.json").string();
    const std::vector<ObservedCollective> observed = parse_collectives(read_text(file), file);
    const SweepQuestion about{.model = c.model,
                              .tree = c.tree,
                              .policy = of_class("LlamaDecoderLayer"),
                              .sweep_thresholds = false,
                              .jobs = {job_on("fsdp2", *sharing_ranks(observed))},
                              .cluster = gpus(*sharing_ranks(observed))};
    const DecodeResult result = decode({.about = about, .other_units = true, .observed = observed});
    EXPECT_EQ(result.world_size, c.expect.at("world_size").integer());
    EXPECT_EQ(result.order.in_step, c.expect.at("ranks_in_step").boolean());
    const json::Value expected = c.expect.at("matches");
    ASSERT_EQ(result.matches.size(), expected.size());
    auto match = result.matches.begin();
    for (const json::Value want : expected.elements()) {
        EXPECT_EQ(collective_kind(want.at("op").string()), match->op);
        EXPECT_EQ(match->numel, want.at("numel").integer());
        if (const auto class_name = want.find("class")) {
            EXPECT_EQ(match->class_name, class_name->string());
            EXPECT_EQ(match->count, want.at("count").integer());
        }
        if (const auto parameter = want.find("parameter")) {
            EXPECT_EQ(match->parameter, parameter->string());
        }
        ++match;
    }
    // The units that explain both are those of the question.
    for (const std::string& wrapped : c.document.root().at("settings").at("wrap").strings()) {
        EXPECT_THAT(result.label, HasSubstr(wrapped));
    }
}

// 15: the stored dtype decides about states, the compute dtype about what is gathered.
TEST(Case15, UpcastShardsDoubleTheStatesAndNotTheGathers) {
    struct Stored {
        DType dtype;
        const char* states;
        const char* checkpoint;
    };
    for (const Stored& stored :
         {Stored{DType::bfloat16, "pure_bf16_state_bytes_per_gpu", "checkpoint_bytes_bf16"},
          Stored{DType::float32, "upcast_state_bytes_per_gpu", "checkpoint_bytes_fp32"}}) {
        const Case c("15-mixed-precision-upcast", stored.dtype);
        EXPECT_EQ(c.tree.numel[0], c.expect.at("params").integer());
        const std::int64_t layer_bytes = c.expect.at("gathered_layer_bytes").integer();
        for (const char* runtime : {"fsdp1", "fsdp2"}) {
            SCOPED_TRACE(std::string(runtime) + ", " + stored.states);
            const TrainingJob job = job_on(runtime, 8);  // computes in bfloat16
            const SweepQuestion question{.model = c.model,
                                         .tree = c.tree,
                                         .policy = of_class("MistralDecoderLayer"),
                                         .sweep_thresholds = false,
                                         .jobs = {job},
                                         .cluster = gpus(8)};
            const SweepResult result = sweep(question);
            ASSERT_EQ(result.plans.size(), 1U);
            const PlanResult& plan = result.plans.front();
            const Schedule schedule = lower({.tree = c.tree, .plan = plan.wrap, .job = job});
            EXPECT_EQ(state_bytes(schedule), c.expect.at(stored.states).integer());
            EXPECT_EQ(shown_state_bytes(plan), c.expect.at(stored.states).integer());
            EXPECT_EQ(8 * term(plan, "parameter_shards").largest_bytes,
                      c.expect.at(stored.checkpoint).integer());
            // Each of 32 layers in forward and in backward, beside the root's embedding, head and norm.
            const Calls gathers = calls_of(plan, CollectiveKind::all_gather);
            EXPECT_EQ(gathers.size(), 2U);
            EXPECT_EQ(layer_bytes % 2, 0);
            const auto layers = gathers.find({DType::bfloat16, layer_bytes / 2});
            ASSERT_NE(layers, gathers.end());
            EXPECT_EQ(layers->second, 64);
        }
    }
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
    EXPECT_EQ(bytes_of(plain.logits_numel, DType::float32).count, c.expect.at("fp32_bytes").integer());
    EXPECT_EQ(c.expect.at("fp32_bytes").integer(), 8 * c.expect.at("fp32_chunk_bytes_8_chunks").integer());
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
    // On eight GPUs as many as on one.
    EXPECT_FALSE(c.expect.at("sharded_by_fsdp").boolean());
    TrainingJob alone = job;
    alone.mesh = {.replicate = 1, .shard = 1};
    const PlanResult one = evaluate(question, units_of(question, alone), alone);
    EXPECT_EQ(term(one, "logits").largest_bytes, term(plan, "logits").largest_bytes);
}

// 17: of a mesh only the shard dimension divides.
struct MeshCase {
    const char* runtime;
    Strategy strategy;
    Mesh mesh;
    const char* states;
};

TEST(Case17, OnlyTheShardDimensionDividesTheStates) {
    const Case c("17-hsdp-mesh", DType::float32);
    const std::int64_t params = c.expect.at("params").integer();
    EXPECT_EQ(c.tree.numel[0], params);
    const std::int64_t shard_of_layer =
        c.expect.at("interhost_allreduce_numel_per_layer_per_rank_2x8").integer();
    using enum Strategy;
    for (const MeshCase& m : {MeshCase{"fsdp1", full_shard, {1, 16}, "full_16_bytes"},
                              MeshCase{"fsdp2", full_shard, {1, 16}, "full_16_bytes"},
                              MeshCase{"fsdp1", hybrid_shard, {2, 8}, "hsdp_2x8_bytes"},
                              MeshCase{"fsdp2", hybrid_shard, {2, 8}, "hsdp_2x8_bytes"},
                              MeshCase{"fsdp2", hybrid_shard, {16, 1}, "hsdp_16x1_bytes"},
                              MeshCase{"ddp", no_shard, {16, 1}, "hsdp_16x1_bytes"}}) {
        SCOPED_TRACE(std::string(m.runtime) + ", " + m.states);
        TrainingJob job = job_on(m.runtime, 16);
        job.strategy = m.strategy;
        job.mesh = m.mesh;
        const SweepQuestion question{.model = c.model,
                                     .tree = c.tree,
                                     .policy = of_class("LlamaDecoderLayer"),
                                     .sweep_thresholds = false,
                                     .jobs = {job},
                                     .cluster = gpus(16)};
        EXPECT_EQ(question.cluster.nodes(), c.document.root().at("settings").at("hosts").integer());
        const SweepResult result = sweep(question);
        ASSERT_EQ(result.plans.size(), 1U);
        const PlanResult& plan = result.plans.front();
        const Schedule schedule = lower({.tree = c.tree, .plan = plan.wrap, .job = job});
        EXPECT_EQ(state_bytes(schedule), c.expect.at(m.states).integer());
        EXPECT_EQ(shown_state_bytes(plan), c.expect.at(m.states).integer());
        std::int64_t reduced = 0;
        for (const Collective& call : plan.collectives) {
            if (call.kind == CollectiveKind::all_reduce) {
                EXPECT_EQ(call.ranks, m.mesh.replicate);
                reduced += call.input_numel * call.count;
            } else if (call.kind != CollectiveKind::broadcast) {
                EXPECT_EQ(call.ranks, m.mesh.shard);  // within one host under 2x8
                EXPECT_GT(call.ranks, 1);
            }
        }
        EXPECT_EQ(reduced, m.mesh.replicate > 1 ? params / m.mesh.shard : 0);
        if (m.mesh == Mesh{.replicate = 2, .shard = 8}) {
            std::int64_t of_layers = 0;
            for (const Collective& call : plan.collectives) {
                const bool layer =
                    call.kind == CollectiveKind::all_reduce && call.input_numel == shard_of_layer;
                of_layers += layer && call.group == RankGroup::replicate ? call.count : 0;
            }
            EXPECT_EQ(of_layers, 32);
        }
    }
}

TEST(Case17, AMeshOfOtherRanksIsRefused) {
    const Case c("17-hsdp-mesh", DType::float32);
    TrainingJob job = job_on("fsdp2", 16);
    job.strategy = Strategy::hybrid_shard;
    job.mesh = parse_mesh("3x8");
    const SweepQuestion question{.model = c.model,
                                 .tree = c.tree,
                                 .policy = of_class("LlamaDecoderLayer"),
                                 .sweep_thresholds = false,
                                 .jobs = {job},
                                 .cluster = gpus(16)};
    const std::string expected(c.expect.at("mesh_3x8_error").string());
    ASSERT_TRUE(expected.starts_with("mesh "));
    try {
        sweep(question);
        FAIL();
    } catch (const Error& error) {
        ASSERT_EQ(error.faults().size(), 1U);
        EXPECT_EQ(error.faults().front().where, "--mesh");
        EXPECT_EQ(error.faults().front().message, "3x8 " + expected.substr(5));
    }
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
    const PlanResult blocks = evaluate(question, units_of(question, question.jobs[0]), question.jobs[0]);
    expect_units(c.expect.at("block_policy"), question);
    EXPECT_EQ(term(blocks, "replicated_parameters").bytes.value,
              4 * c.expect.at("replicated_numel_per_rank").integer());
    question.policy = by_size(20000);
    expect_units(c.expect.at("size_policy_20000"), question);
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
    EXPECT_EQ(c.tree.numel[0], c.expect.at("params").integer());
    const PlanResult plan = evaluate(question, units_of(question, job), job);
    EXPECT_EQ(plan.units, c.expect.at("units").integer());
    EXPECT_EQ(plan.root_numel, c.expect.at("root_numel").integer());
    EXPECT_EQ(plan.largest_unit_numel, c.expect.at("layer_numel").integer());
    const Schedule schedule = schedule_of(question, plan);
    const std::int64_t states = state_bytes(schedule);
    EXPECT_EQ(states, c.expect.at("state_bytes_per_gpu").integer());
    const std::int64_t gathered = test::most_bytes(schedule, Category::unsharded, "model.layers.20",
                                                   Mark::pre_backward, Mark::post_backward);
    EXPECT_EQ(gathered, c.expect.at("gathered_root_plus_2_layers_bytes").integer());
    EXPECT_EQ(cluster.budget.count - states - gathered, c.expect.at("left_for_activations_bytes").integer());
    const bool units_fit = states + gathered < cluster.budget.count;
    EXPECT_EQ(units_fit && !plan.fits ? "model states and gathered units fit; activations decide" : "another",
              c.expect.at("verdict").string());
}

}  // namespace
}  // namespace fsdplan
