#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/json.hpp"
#include "fsdplan/report.hpp"
#include "support/model_in_code.hpp"

namespace fsdplan {
namespace {

struct Simulated {
    Simulated() : graph(test::chain(6, 512).graph()), tree(flatten(graph)) {
        TrainingJob job;
        job.runtime = "fsdp1";
        job.mesh = {.replicate = 1, .shard = 8};
        question = std::make_unique<SweepQuestion>(SweepQuestion{.model = graph,
                                                                 .tree = tree,
                                                                 .policy = {},
                                                                 .sweep_thresholds = false,
                                                                 .jobs = {job},
                                                                 .cluster = find_cluster({.gpus = 8})});
        question->policy.kind = PolicySpec::Kind::module_classes;
        question->policy.classes = {"Block"};
        result = simulate_step(*question);
    }
    ModelGraph graph;
    ModuleTree tree;
    std::unique_ptr<SweepQuestion> question;
    StepResult result;
};

TEST(StepReport, JsonHasEveryCollectiveOfAStep) {
    const Simulated simulated;
    const json::Document document(json_report(*simulated.question, simulated.result, "0"), "result");
    const json::Value root = document.root();
    EXPECT_EQ(root.at("command").string(), "simulate");
    std::int64_t gathers = 0;
    std::int64_t before = 0;
    for (const json::Value call : root.at("collectives").elements()) {
        EXPECT_LE(call.at("start_ns").integer(), call.at("end_ns").integer());
        EXPECT_GE(call.at("start_ns").integer(), before);  // one communicator: in order
        before = call.at("start_ns").integer();
        EXPECT_EQ(call.at("group_size").integer(), 8);
        EXPECT_EQ(call.at("exposed_ns").integer() > 0, !call.at("cause").is_null());
        gathers += call.at("op").string() == "all_gather" ? 1 : 0;
    }
    EXPECT_EQ(gathers, 12);  // six units, forward and backward
}

TEST(StepReport, WhatIsAliveAddsUpToThePeak) {
    const Simulated simulated;
    const json::Document document(json_report(*simulated.question, simulated.result, "0"), "result");
    const json::Value root = document.root();
    std::int64_t alive = 0;
    for (const json::Value row : root.at("peak_live").elements()) {
        alive += row.at("bytes").integer();
    }
    std::int64_t by_category = 0;
    for (const json::Value category : root.at("peak").at("by_category").members()) {
        by_category += category.integer();
    }
    // The allocator rounds every block up to 512 bytes; all but the loss are multiples.
    EXPECT_GE(by_category, alive);
    EXPECT_LT(by_category, alive + 512);
    EXPECT_GE(root.at("peak").at("allocated_bytes").integer(), alive);
    EXPECT_LE(root.at("peak").at("allocated_bytes").integer(),
              root.at("peak").at("reserved_bytes").at("value").integer());
}

TEST(StepReport, TextSaysWhereThePeakIs) {
    const Simulated simulated;
    const std::string text = text_report(*simulated.question, simulated.result);
    EXPECT_THAT(text, testing::StartsWith("runs in "));
    for (const char* head :
         {"Allocated", "Reserved", "Process", "Alive at the peak:", "Collectives of a step:"}) {
        EXPECT_THAT(text, testing::HasSubstr(head));
    }
}

TEST(StepReport, TooLittleMemoryIsAnAnswer) {
    Simulated simulated;
    simulated.question->cluster.budget = 810_MiB;
    const StepResult result = simulate_step(*simulated.question);
    ASSERT_TRUE(result.run.memory->out_of_memory.has_value());
    EXPECT_THAT(text_report(*simulated.question, result), testing::StartsWith("out of memory in "));
}

// Pages are mapped one by one instead of whole segments.
TEST(SimulateStep, TheAllocatorsOptionsReachTheReplay) {
    const Simulated simulated;
    const StepOptions expandable{.allocator = parse_alloc_conf("expandable_segments:True")};
    const StepResult result = simulate_step(*simulated.question, expandable);
    EXPECT_NE(result.run.reserved_bytes->value, simulated.result.run.reserved_bytes->value);
}

TEST(SimulateStep, ContentionNeverMakesAStepFaster) {
    const Simulated simulated;
    const StepResult slowed = simulate_step(*simulated.question, {.contention = true});
    EXPECT_EQ(slowed.run.method, Method::event_simulator);
    EXPECT_GE(slowed.run.step_ns.value, simulated.result.run.step_ns.value);
}

}  // namespace
}  // namespace fsdplan
