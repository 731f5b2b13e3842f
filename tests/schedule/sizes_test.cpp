#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "fsdplan/schedule.hpp"
#include "support/model_in_code.hpp"
#include "support/schedule_bytes.hpp"

namespace fsdplan {
namespace {

using test::bytes_at;
using test::bytes_over_time;
using test::most_bytes;
using test::unit_bytes;

TrainingJob plain(std::string_view runtime, std::int64_t ranks) {
    TrainingJob job;
    job.runtime = runtime;
    job.mesh = {.replicate = 1, .shard = ranks};
    job.param_dtype.reset();
    return job;
}

PolicySpec block_units() {
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::module_classes;
    spec.classes = {"Block"};
    return spec;
}

Schedule lowered(const ModuleTree& tree, const TrainingJob& job) {
    const WrapOptions options = wrap_options(job);
    const bool policy = runtime(job.runtime).wraps_by_policy;
    const WrapPlan plan =
        policy ? wrap_fsdp1(tree, block_units(), options) : wrap_fsdp2(tree, block_units(), options);
    return lower({.tree = tree, .plan = plan, .job = job});
}

/// The calls of a kind in one step, in which there is one of that kind.
Collective call_of(const Schedule& schedule, CollectiveKind kind) {
    for (const Collective& call : traffic_of(schedule)) {
        if (call.kind == kind) {
            return call;
        }
    }
    throw std::logic_error("no such call");
}

constexpr std::int64_t moments = 2;  // states of AdamW on the device

TEST(RowShard, LastRanksMayOwnNothing) {
    const std::vector<std::int64_t> shape{12, 17};
    EXPECT_EQ(row_shard(shape, 8, 0).padded_rows, 2);
    EXPECT_EQ(row_shard(shape, 8, 5).owned_numel(), 34);
    EXPECT_EQ(row_shard(shape, 8, 6).owned_rows, 0);
    EXPECT_EQ(row_shard(shape, 8, 7).padded_numel(), 34);
}

// Three blocks of 10 x 10 on 4 ranks in float32: 25 elements a shard, 100 gathered.
TEST(Fsdp1, GathersTwiceAndReducesOnce) {
    const ModuleTree tree = flatten(test::chain(3, 10).graph());
    const Schedule schedule = lowered(tree, plain("fsdp1", 4));
    ASSERT_EQ(schedule.units.size(), 4U);  // the root owns nothing
    EXPECT_EQ(unit_bytes(schedule, Category::shard, ""), 0);
    EXPECT_EQ(unit_bytes(schedule, Category::shard, "layers.0"), 100);
    EXPECT_EQ(most_bytes(schedule, Category::unsharded, "layers.0", Mark::forward_begin, Mark::forward_end),
              400);
    const std::vector<Collective> traffic = traffic_of(schedule);
    ASSERT_EQ(traffic.size(), 2U);
    EXPECT_EQ(call_of(schedule, CollectiveKind::all_gather).input_numel, 25);
    EXPECT_EQ(call_of(schedule, CollectiveKind::reduce_scatter).output_numel, 25);
    EXPECT_EQ(call_of(schedule, CollectiveKind::all_gather).count, 6);
    EXPECT_EQ(call_of(schedule, CollectiveKind::reduce_scatter).count, 3);
    // 9 collectives of 400 bytes, of which a rank sends three quarters.
    EXPECT_EQ(sent_bytes(traffic), 9 * 300);
}

TEST(Fsdp1, BackwardHoldsTheUnitAndThePrefetchedOne) {
    const ModuleTree tree = flatten(test::chain(3, 10).graph());
    TrainingJob job = plain("fsdp1", 4);
    const Schedule schedule = lowered(tree, job);
    const auto unsharded = [](const Schedule& s, std::string_view unit, Mark from, Mark to) {
        return most_bytes(s, Category::unsharded, unit, from, to);
    };
    EXPECT_EQ(unsharded(schedule, "layers.2", Mark::forward_begin, Mark::forward_end), 400);
    EXPECT_EQ(bytes_at(schedule, Category::unsharded, Mark::loss), 0);
    EXPECT_EQ(unsharded(schedule, "layers.2", Mark::pre_backward, Mark::post_backward), 800);
    EXPECT_EQ(unsharded(schedule, "layers.0", Mark::pre_backward, Mark::post_backward),
              400);  // nothing comes before it
    // Gradients of the parameters and their concatenation; the shards of the units behind are there.
    EXPECT_EQ(most_bytes(schedule, Category::gradient, "layers.1", Mark::pre_backward, Mark::post_backward),
              800);
    EXPECT_EQ(bytes_at(schedule, Category::gradient_shard, Mark::post_backward, "layers.1"), 100);
    EXPECT_EQ(bytes_at(schedule, Category::gradient_shard, Mark::optimizer_step), 300);

    job.backward_prefetch = BackwardPrefetch::none;
    EXPECT_EQ(unsharded(lowered(tree, job), "layers.2", Mark::pre_backward, Mark::post_backward), 400);
}

TEST(Fsdp1, ShardGradOpKeepsWhatItGathered) {
    const ModuleTree tree = flatten(test::chain(3, 10).graph());
    TrainingJob job = plain("fsdp1", 4);
    job.strategy = Strategy::shard_grad_op;
    const Schedule schedule = lowered(tree, job);
    EXPECT_EQ(bytes_at(schedule, Category::unsharded, Mark::loss), 1200);
    EXPECT_EQ(most_bytes(schedule, Category::unsharded, "layers.0", Mark::pre_backward, Mark::post_backward),
              400);
    EXPECT_EQ(call_of(schedule, CollectiveKind::all_gather).count, 3);  // none in backward
    job.accumulate = 4;
    job.no_sync = true;
    EXPECT_EQ(call_of(lowered(tree, job), CollectiveKind::all_gather).count,
              3);  // kept through all micro-batches
}

TEST(Fsdp1, OriginalParametersAreAlignedAndOwnedByRank) {
    // Two weights of 3 elements, 16 bytes apart in float32: offsets 0 and 4, 7 elements, 8 on two ranks.
    test::ModelInCode model("toys.Net");
    const ModuleIndex block = model.child(model.root(), "block", "toys.Block");
    model.child(block, "a", test::linear, {{"weight", {3, 1}, DType::float32, false}});
    model.child(block, "b", test::linear, {{"weight", {3, 1}}});
    const ModuleTree tree = flatten(model.graph());
    TrainingJob job = plain("fsdp1", 2);
    job.use_orig_params = true;
    const Schedule schedule = lowered(tree, job);
    EXPECT_EQ(unit_bytes(schedule, Category::shard, "block"), 16);
    // The frozen one has a gradient too.
    EXPECT_EQ(bytes_at(schedule, Category::gradient_shard, Mark::optimizer_step), 16);
    // But no optimizer state; rank 1 owns all of the other.
    EXPECT_EQ(bytes_at(schedule, Category::optimizer, Mark::optimizer_step), moments * 3 * 4);
}

TEST(Fsdp2, StoresPaddedRowsAndReducesOnlyTrainableOnes) {
    test::ModelInCode model("toys.Net");
    const ModuleIndex block = model.child(model.root(), "block", "toys.Block");
    model.child(block, "a", test::linear, {{"weight", {5, 3}, DType::float32, false}});
    model.child(block, "b", test::linear, {{"weight", {2, 3}}});
    const ModuleTree tree = flatten(model.graph());
    const Schedule schedule = lowered(tree, plain("fsdp2", 4));
    EXPECT_EQ(unit_bytes(schedule, Category::shard, "block"), (2 * 3 + 1 * 3) * 4);
    EXPECT_EQ(most_bytes(schedule, Category::unsharded, "block", Mark::forward_begin, Mark::forward_end),
              4 * unit_bytes(schedule, Category::shard, "block"));
    EXPECT_EQ(call_of(schedule, CollectiveKind::all_gather).input_numel, 9);
    EXPECT_EQ(call_of(schedule, CollectiveKind::reduce_scatter).output_numel, 3);
    EXPECT_EQ(most_bytes(schedule, Category::gradient, "block", Mark::pre_backward, Mark::post_backward),
              6 * 4);
    EXPECT_EQ(bytes_at(schedule, Category::optimizer, Mark::optimizer_step), moments * 3 * 4);
}

TEST(Fsdp2, OneRankCopiesButCallsNobody) {
    const ModuleTree tree = flatten(test::chain(2, 8).graph());
    const Schedule schedule = lowered(tree, plain("fsdp2", 1));
    EXPECT_TRUE(traffic_of(schedule).empty());
    EXPECT_EQ(most_bytes(schedule, Category::unsharded, "layers.0", Mark::forward_begin, Mark::forward_end),
              unit_bytes(schedule, Category::shard, "layers.0"));
}

TEST(Ddp, ReducesInBuckets) {
    // 4 MiB of float32 a block: the first bucket closes at 1 MiB, the others at 25 MiB.
    const ModuleTree tree = flatten(test::chain(20, 1024).graph());
    TrainingJob job = plain("ddp", 1);
    job.strategy = Strategy::no_shard;
    job.mesh = {.replicate = 8, .shard = 1};
    const WrapPlan plan;
    const Schedule schedule = lower({.tree = tree, .plan = plan, .job = job, .iterations = 3});
    std::int64_t calls = 0;
    for (const Collective& call : traffic_of(schedule)) {
        calls += call.count;
        EXPECT_EQ(call.kind, CollectiveKind::all_reduce);
    }
    EXPECT_EQ(calls, 4);  // 4 MiB, then 28, 28 and the last 20
    EXPECT_EQ(bytes_at(schedule, Category::shard, Mark::loss), 80 << 20);
    EXPECT_EQ(bytes_at(schedule, Category::reduce_input, Mark::loss), 80 << 20);
}

TEST(TrainingJob, RefusesMeshesOfAnotherSize) {
    TrainingJob job;
    job.mesh = {.replicate = 3, .shard = 8};
    try {
        check(job, 16);
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()), "--mesh: 3x8 needs 24 ranks, 16 given");
    }
}

TEST(TrainingJob, NamesParseBackToThemselves) {
    for (const char* text : {"adamw:fused", "adamw:for-loop", "adam8bit", "sgd", "sgd-momentum"}) {
        EXPECT_EQ(name(parse_optimizer(text)), text);
    }
    for (const char* text : {"none", "blocks", "every:3", "selective"}) {
        EXPECT_EQ(name(parse_activation_checkpointing(text)), text);
    }
    for (const char* text : {"cross-entropy", "shifted", "chunked:4", "fused:8", "none"}) {
        EXPECT_EQ(name(parse_loss(text)), text);
    }
    EXPECT_EQ(parse_strategy("full-shard"), Strategy::full_shard);
    EXPECT_EQ(parse_strategy("_HYBRID_SHARD_ZERO2"), Strategy::hybrid_shard_zero2);
    EXPECT_EQ(parse_mesh("2x8"), (Mesh{.replicate = 2, .shard = 8}));
    for (const char* text : {"2", "0x4", "x", "2x8x1", "-1x2"}) {
        EXPECT_THROW(parse_mesh(text), Error) << text;
    }
    EXPECT_THROW(parse_optimizer("sgd:fused"), Error);
    EXPECT_THROW(parse_activation_checkpointing("every"), Error);
}

// Laws over random chains with odd widths.
TEST(Sizes, KeepTheirLaws) {
    std::mt19937_64 random(20260401);
    for (int round = 0; round < 60; ++round) {
        const auto blocks = static_cast<int>(1 + random() % 5);
        const auto width = static_cast<std::int64_t>(1 + random() % 23);
        const ModuleTree tree = flatten(test::chain(blocks, width).graph());
        for (const char* runtime : {"fsdp1", "fsdp2"}) {
            std::int64_t before = std::numeric_limits<std::int64_t>::max();
            for (const std::int64_t ranks : {1, 2, 4, 8, 16, 64}) {
                TrainingJob job = plain(runtime, ranks);
                job.use_orig_params = round % 2 == 1;
                const Schedule schedule = lowered(tree, job);
                const std::int64_t unpadded = tree.numel[0] * 4;
                const std::int64_t shards = bytes_at(schedule, Category::shard, Mark::loss);
                EXPECT_GE(shards * ranks, unpadded);  // the shards make up the whole, with padding
                if (ranks == 1 && !job.use_orig_params) {
                    EXPECT_EQ(shards, unpadded);
                }
                EXPECT_LE(shards, before) << runtime << ' ' << ranks << " ranks, round " << round;
                before = shards;
                EXPECT_LE(bytes_at(schedule, Category::optimizer, Mark::optimizer_step), moments * shards);
                EXPECT_EQ(bytes_at(schedule, Category::gradient_shard, Mark::optimizer_step), shards);
                if (ranks == 1) {
                    EXPECT_EQ(sent_bytes(traffic_of(schedule)), 0);
                }
                for (std::size_t u = 1; u < schedule.units.size(); ++u) {
                    const std::string& unit = schedule.units[u];
                    const std::int64_t unsharded = most_bytes(schedule, Category::unsharded, unit,
                                                              Mark::forward_begin, Mark::forward_end);
                    const std::int64_t stored = unit_bytes(schedule, Category::shard, unit);
                    EXPECT_GE(unsharded + (ranks == 1 ? stored : 0), width * width * 4);
                }
                for (const Category category : {Category::unsharded, Category::gradient}) {
                    const std::vector<std::int64_t> bytes = bytes_over_time(schedule, category);
                    EXPECT_GE(*std::ranges::min_element(bytes), 0);
                }
                EXPECT_LE(std::ranges::max(bytes_over_time(schedule, Category::gradient_shard)), shards);
            }
        }
    }
}

}  // namespace
}  // namespace fsdplan
