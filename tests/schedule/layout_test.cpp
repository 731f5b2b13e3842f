#include <gtest/gtest.h>

#include <random>

#include "fsdplan/schedule.hpp"
#include "support/model_in_code.hpp"

namespace fsdplan {
namespace {

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

StepLayout laid_out(const ModuleTree& tree, const TrainingJob& job) {
    const WrapOptions options = wrap_options(job);
    const bool policy = runtime(job.runtime).wraps_by_policy;
    const WrapPlan plan =
        policy ? wrap_fsdp1(tree, block_units(), options) : wrap_fsdp2(tree, block_units(), options);
    return lay_out(tree, plan, job);
}

const Moment& moment(const StepLayout& layout, Phase phase, std::int32_t row) {
    for (const Moment& m : layout.moments) {
        if (m.phase == phase && m.row == row) {
            return m;
        }
    }
    throw std::logic_error("no such moment");
}

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
    const StepLayout layout = laid_out(tree, plain("fsdp1", 4));
    ASSERT_EQ(layout.units.size(), 4U);  // the root owns nothing
    EXPECT_EQ(layout.units[0].shard_bytes, 0);
    EXPECT_EQ(layout.units[1].shard_bytes, 100);
    EXPECT_EQ(layout.units[1].unsharded_bytes, 400);
    EXPECT_EQ(layout.units[1].gather->input_numel, 25);
    EXPECT_EQ(layout.units[1].reduce->output_numel, 25);
    ASSERT_EQ(layout.collectives.size(), 2U);
    EXPECT_EQ(layout.collectives[0].count, 6);
    EXPECT_EQ(layout.collectives[1].count, 3);
    // 9 collectives of 400 bytes, of which a rank sends three quarters.
    EXPECT_EQ(layout.sent_bytes, 9 * 300);
}

TEST(Fsdp1, BackwardHoldsTheUnitAndThePrefetchedOne) {
    const ModuleTree tree = flatten(test::chain(3, 10).graph());
    TrainingJob job = plain("fsdp1", 4);
    const StepLayout layout = laid_out(tree, job);
    EXPECT_EQ(moment(layout, Phase::forward, 3).unsharded_bytes, 400);
    EXPECT_EQ(moment(layout, Phase::loss, -1).unsharded_bytes, 0);
    EXPECT_EQ(moment(layout, Phase::backward, 3).unsharded_bytes, 800);
    EXPECT_EQ(moment(layout, Phase::backward, 1).unsharded_bytes, 400);  // nothing comes before it
    // Gradients of the parameters and their concatenation; the shards of the units behind are there.
    EXPECT_EQ(moment(layout, Phase::gradient, 2).gradient_bytes, 800);
    EXPECT_EQ(moment(layout, Phase::gradient, 2).gradient_shard_bytes, 100);
    EXPECT_EQ(moment(layout, Phase::step, -1).gradient_shard_bytes, 300);

    job.backward_prefetch = BackwardPrefetch::none;
    EXPECT_EQ(moment(laid_out(tree, job), Phase::backward, 3).unsharded_bytes, 400);
}

TEST(Fsdp1, ShardGradOpKeepsWhatItGathered) {
    const ModuleTree tree = flatten(test::chain(3, 10).graph());
    TrainingJob job = plain("fsdp1", 4);
    job.strategy = Strategy::shard_grad_op;
    const StepLayout layout = laid_out(tree, job);
    EXPECT_EQ(moment(layout, Phase::loss, -1).unsharded_bytes, 1200);
    EXPECT_EQ(moment(layout, Phase::backward, 1).unsharded_bytes, 400);
    EXPECT_FALSE(layout.units[1].regather.has_value());
    job.accumulate = 4;
    job.no_sync = true;
    EXPECT_EQ(laid_out(tree, job).units[1].gather->count, 1);  // kept through all micro-batches
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
    const StepLayout layout = laid_out(tree, job);
    EXPECT_EQ(layout.units[1].shard_bytes, 16);
    EXPECT_EQ(layout.units[1].gradient_shard_bytes, 16);  // the frozen one has a gradient too
    EXPECT_EQ(layout.owned_numel, 3);  // but no optimizer state; rank 1 owns all of the other
}

TEST(Fsdp2, StoresPaddedRowsAndReducesOnlyTrainableOnes) {
    test::ModelInCode model("toys.Net");
    const ModuleIndex block = model.child(model.root(), "block", "toys.Block");
    model.child(block, "a", test::linear, {{"weight", {5, 3}, DType::float32, false}});
    model.child(block, "b", test::linear, {{"weight", {2, 3}}});
    const ModuleTree tree = flatten(model.graph());
    const StepLayout layout = laid_out(tree, plain("fsdp2", 4));
    const UnitLayout& unit = layout.units[1];
    EXPECT_EQ(unit.shard_bytes, (2 * 3 + 1 * 3) * 4);
    EXPECT_EQ(unit.unsharded_bytes, 4 * unit.shard_bytes);
    EXPECT_EQ(unit.gather->input_numel, 9);
    EXPECT_EQ(unit.reduce->output_numel, 3);
    EXPECT_EQ(unit.gradient_bytes, 6 * 4);
    EXPECT_EQ(layout.owned_numel, 3);
}

TEST(Fsdp2, OneRankCopiesButCallsNobody) {
    const ModuleTree tree = flatten(test::chain(2, 8).graph());
    const StepLayout layout = laid_out(tree, plain("fsdp2", 1));
    EXPECT_TRUE(layout.collectives.empty());
    EXPECT_EQ(layout.sent_bytes, 0);
    EXPECT_EQ(layout.units[1].unsharded_bytes, layout.units[1].shard_bytes);
}

TEST(Ddp, ReducesInBuckets) {
    // 3 MiB of float32 a block: the first bucket closes at 1 MiB, the others at 25 MiB.
    const ModuleTree tree = flatten(test::chain(20, 1024).graph());  // 4 MiB each
    TrainingJob job = plain("ddp", 1);
    job.strategy = Strategy::no_shard;
    job.mesh = {.replicate = 8, .shard = 1};
    const StepLayout layout = lay_out(tree, wrap(tree, {}, {}), job);
    std::int64_t calls = 0;
    for (const Collective& call : layout.collectives) {
        calls += call.count;
        EXPECT_EQ(call.kind, CollectiveKind::all_reduce);
    }
    EXPECT_EQ(calls, 4);  // 4 MiB, then 28, 28 and the last 20
    EXPECT_EQ(layout.shard_bytes, 80 << 20);
    EXPECT_EQ(layout.reduce_bucket_bytes, 80 << 20);
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
    for (const char* text : {"adamw:fused", "adamw:for-loop", "adam8bit", "sgd"}) {
        EXPECT_EQ(name(parse_optimizer(text)), text);
    }
    for (const char* text : {"none", "blocks", "every:3", "selective"}) {
        EXPECT_EQ(name(parse_activation_checkpointing(text)), text);
    }
    for (const char* text : {"cross-entropy", "chunked:4", "fused:8", "none"}) {
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
TEST(StepLayout, KeepsItsLaws) {
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
                const StepLayout layout = laid_out(tree, job);
                const std::int64_t unpadded = tree.numel[0] * 4;
                EXPECT_GE(layout.shard_bytes * ranks,
                          unpadded);  // the shards make up the whole, with padding
                if (ranks == 1 && !job.use_orig_params) {
                    EXPECT_EQ(layout.shard_bytes, unpadded);
                }
                EXPECT_LE(layout.shard_bytes, before) << runtime << ' ' << ranks << " ranks, round " << round;
                before = layout.shard_bytes;
                EXPECT_LE(layout.owned_bytes, layout.shard_bytes);
                EXPECT_EQ(layout.gradient_shard_bytes, layout.shard_bytes);
                if (ranks == 1) {
                    EXPECT_EQ(layout.sent_bytes, 0);
                }
                for (const UnitLayout& unit : layout.units) {
                    EXPECT_GE(unit.unsharded_bytes + (ranks == 1 ? unit.shard_bytes : 0), unit.numel * 4);
                }
                for (const Moment& m : layout.moments) {
                    EXPECT_GE(m.unsharded_bytes, 0);
                    EXPECT_GE(m.gradient_bytes, 0);
                    EXPECT_LE(m.gradient_shard_bytes, layout.gradient_shard_bytes);
                }
            }
        }
    }
}

}  // namespace
}  // namespace fsdplan
