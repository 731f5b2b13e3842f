#include <gtest/gtest.h>

#include "fsdplan/schedule.hpp"
#include "support/model_in_code.hpp"

namespace fsdplan {
namespace {

TrainingJob job_of(std::string_view runtime, std::int64_t ranks) {
    TrainingJob job;
    job.runtime = runtime;
    job.mesh = {.replicate = 1, .shard = ranks};
    job.param_dtype.reset();
    return job;
}

/// Two blocks "layers.0" and "layers.1", each a unit, and the root.
WrapPlan by_block(const ModuleTree& tree, const TrainingJob& job) {
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::module_classes;
    spec.classes = {"Block"};
    return job.runtime == "fsdp1" ? wrap_fsdp1(tree, spec, wrap_options(job))
                                  : wrap_fsdp2(tree, spec, wrap_options(job));
}

std::vector<Diagnostic> refused(const TrainingJob& job, std::int64_t width = 8) {
    const ModuleTree tree = flatten(test::chain(2, width).graph());
    return refusals(tree, by_block(tree, job), job);
}

TEST(Refusals, NothingIsWrongWithTheDefaults) {
    EXPECT_TRUE(refused(job_of("fsdp1", 8)).empty());
    EXPECT_TRUE(refused(job_of("fsdp2", 8)).empty());
    EXPECT_TRUE(refused(job_of("ddp", 8)).empty());
}

TEST(Refusals, GroupsOfReshardAfterForwardDivideTheShardRanks) {
    for (const std::int64_t ranks : {2, 4, 8}) {
        TrainingJob job = job_of("fsdp2", 8);
        job.reshard_after_forward = ranks;
        EXPECT_TRUE(refused(job).empty()) << ranks;
    }
    for (const std::int64_t ranks : {3, 16}) {
        TrainingJob job = job_of("fsdp2", 8);
        job.reshard_after_forward = ranks;
        const std::vector<Diagnostic> found = refused(job);
        ASSERT_EQ(found.size(), 1U) << ranks;  // the first call raises, the others are not reached
        EXPECT_EQ(found[0].rule, WrapRule::reshard_ranks);
        EXPECT_EQ(found[0].severity, Severity::error);
        EXPECT_EQ(found[0].error_type, "ValueError");
        EXPECT_EQ(found[0].unit, "layers.0");
        EXPECT_EQ(found[0].error_text,
                  "If passing reshard_after_forward as an int, it should be a factor of 8, not " +
                      std::to_string(ranks));
    }
    TrainingJob replicated = job_of("fsdp2", 4);
    replicated.mesh.replicate = 2;
    replicated.reshard_after_forward = 8;  // divides the ranks, but not those of a shard group
    EXPECT_EQ(refused(replicated).size(), 1U);
}

TEST(Refusals, AWholeNumberOfAUnitIsNoTruthValue) {
    const ModuleTree tree = flatten(test::chain(2, 8).graph());
    const TrainingJob job = job_of("fsdp2", 8);
    WrapPlan plan = by_block(tree, job);
    plan.units[1].arguments = {{"reshard_after_forward", "false"}};
    EXPECT_TRUE(refusals(tree, plan, job).empty());
    plan.units[1].arguments = {{"reshard_after_forward", "1"}};
    EXPECT_TRUE(refusals(tree, plan, job).empty());
    plan.units[1].arguments = {{"reshard_after_forward", "0"}};
    const std::vector<Diagnostic> found = refusals(tree, plan, job);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].unit, "layers.1");
}

TEST(Refusals, TheUnitsOwnValueWinsOverTheJobs) {
    const ModuleTree tree = flatten(test::chain(2, 8).graph());
    TrainingJob job = job_of("fsdp2", 8);
    job.reshard_after_forward = 3;
    WrapPlan plan = by_block(tree, job);
    for (Unit& unit : plan.units) {
        unit.arguments = {{"reshard_after_forward", "4"}};
    }
    EXPECT_TRUE(refusals(tree, plan, job).empty());
}

TEST(Refusals, AJobThatCannotBeNamesPyTorchsError) {
    TrainingJob job = job_of("fsdp2", 8);
    job.reshard_after_forward = 3;
    try {
        check(job, 8);
        FAIL() << "3 does not divide 8";
    } catch (const Error& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("--reshard-after-forward"), std::string::npos) << text;
        EXPECT_NE(text.find("ValueError: If passing reshard_after_forward as an int, it should be a factor "
                            "of 8, not 3"),
                  std::string::npos)
            << text;
        EXPECT_EQ(text.find('\n'), std::string::npos);
    }
}

TEST(Refusals, OtherDimensionsThanTheFirstSplitEvenly) {
    TrainingJob job = job_of("fsdp2", 8);
    job.fsdp2.shard_dim = 1;
    EXPECT_TRUE(refused(job, 16).empty());
    const std::vector<Diagnostic> found = refused(job, 12);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].error_type, "NotImplementedError");
    EXPECT_EQ(found[0].tensors, std::vector<std::string>{"layers.0.fc.weight"});
    EXPECT_EQ(found[0].error_text,
              "FSDP does not support uneven sharding on dim 1: torch.Size([12, 12]) (world size: 8)");
    job.fsdp2.shard_dim = 2;  // matrices have no such dimension and go by rows
    EXPECT_TRUE(refused(job, 12).empty());
    job.fsdp2.shard_dim = 0;  // rows are padded
    EXPECT_TRUE(refused(job, 12).empty());
}

TEST(Refusals, AllUnitsOfFsdp1AgreeOnTwoSettings) {
    for (const char* setting : {"use_orig_params", "limit_all_gathers"}) {
        const ModuleTree tree = flatten(test::chain(2, 8).graph());
        TrainingJob job = job_of("fsdp1", 8);
        job.use_orig_params = false;
        job.limit_all_gathers = false;
        PolicySpec spec;
        spec.kind = PolicySpec::Kind::custom;
        spec.rules = {{.selector = "fqn:layers.1",
                       .answer = PolicySpec::Rule::Answer::arguments,
                       .arguments = {{setting, "true"}}}};
        const std::vector<Diagnostic> found = refusals(tree, wrap_fsdp1(tree, spec, wrap_options(job)), job);
        ASSERT_EQ(found.size(), 1U) << setting;
        EXPECT_EQ(found[0].rule, WrapRule::unequal_settings);
        EXPECT_EQ(found[0].severity, Severity::forward_error);
        EXPECT_EQ(found[0].unit, "layers.1");
        EXPECT_TRUE(found[0].error_text.ends_with("but got {False, True}"));
        spec.rules[0].arguments = {{setting, "false"}};
        EXPECT_TRUE(refusals(tree, wrap_fsdp1(tree, spec, wrap_options(job)), job).empty()) << setting;
    }
}

TEST(Refusals, AHybridStrategyByHandNeedsGroups) {
    const ModuleTree tree = flatten(test::chain(2, 8).graph());
    TrainingJob job = job_of("fsdp1", 4);
    job.mesh.replicate = 2;
    job.strategy = Strategy::hybrid_shard_zero2;
    const WrapPlan by_hand = wrap_fsdp1(tree, {}, wrap_options(job));
    EXPECT_TRUE(refusals(tree, by_hand, job).empty());
    job.fsdp1.process_groups = false;
    const std::vector<Diagnostic> found = refusals(tree, by_hand, job);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].error_text,
              "Manual wrapping with ShardingStrategy._HYBRID_SHARD_ZERO2 requires explicit specification of "
              "process group or device_mesh.");
    // With a policy FSDP makes groups of nodes by itself.
    EXPECT_TRUE(refusals(tree, by_block(tree, job), job).empty());
    job.strategy = Strategy::full_shard;
    EXPECT_TRUE(refusals(tree, by_hand, job).empty());
}

/// The calls of one forward, by path; what feeds what does not matter here.
ModuleTree called(const std::vector<std::string>& paths) {
    ModuleTree tree = flatten(test::chain(2, 8).graph());
    for (const std::string& path : paths) {
        tree.calls.module.push_back(*tree.find(path));
    }
    tree.calls.from_begin.assign(paths.size() + 1, 0);
    return tree;
}

TEST(Refusals, NoUnitRunsBeforeTheRoot) {
    const TrainingJob job = job_of("fsdp2", 8);
    const ModuleTree usual = called({"", "layers.0", "layers.0.fc", "layers.1", "layers.1.fc"});
    EXPECT_TRUE(refusals(usual, by_block(usual, job), job).empty());
    // torch walks down from the root and names the first that it meets, not the first that ran.
    const ModuleTree early = called({"layers.1", "layers.1.fc", "layers.0", "layers.0.fc", "", "layers.0"});
    const std::vector<Diagnostic> found = refusals(early, by_block(early, job), job);
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].rule, WrapRule::unit_before_root);
    EXPECT_EQ(found[0].error_text, "FSDP state has already been lazily initialized for layers.0");
    // A module that is no unit of its own may run whenever it likes, and FSDP1 does not mind.
    const ModuleTree part = called({"layers.1.fc", "", "layers.0"});
    EXPECT_TRUE(refusals(part, by_block(part, job), job).empty());
    const TrainingJob fsdp1 = job_of("fsdp1", 8);
    EXPECT_TRUE(refusals(early, by_block(early, fsdp1), fsdp1).empty());
}

}  // namespace
}  // namespace fsdplan
