#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/json.hpp"
#include "fsdplan/report.hpp"

namespace fsdplan {
namespace {

struct Swept {
    Swept(std::int64_t gpus, std::int64_t batch) {
        model = import_model("llama3.2-1b", {.dtype = DType::float32});
        tree = flatten(model);
        TrainingJob job;
        job.runtime = "fsdp1";
        job.mesh = {.replicate = 1, .shard = gpus};
        job.batch = batch;
        PolicySpec size;
        size.kind = PolicySpec::Kind::recursive;
        size.members.push_back({.name = "size"});
        jobs = {job};
        policy = size;
        cluster = find_cluster({.gpus = gpus});
    }
    SweepQuestion question() const {
        return {.model = model, .tree = tree, .policy = policy, .jobs = jobs, .cluster = cluster};
    }

    ModelGraph model;
    ModuleTree tree;
    PolicySpec policy;
    std::vector<TrainingJob> jobs;
    Cluster cluster;
};

TEST(JsonReport, IsAResultThatReportsTake) {
    const Swept swept(8, 1);
    const SweepResult result = sweep(swept.question());
    const std::string text = json_report(swept.question(), result, "0.1.0");
    check_result(text, "sweep.json");
    EXPECT_THAT(html_report(text), testing::HasSubstr("fsdplan.result"));
}

TEST(JsonReport, HoldsTheKeysThatScriptsRelyOn) {
    const Swept swept(8, 1);
    const SweepResult result = sweep(swept.question());
    const json::Document document(json_report(swept.question(), result, "0.1.0"), "sweep.json");
    const json::Value root = document.root();
    EXPECT_EQ(root.at("command").string(), "sweep");
    EXPECT_EQ(root.at("model").at("parameters").at("numel").integer(), 1'235'814'400);
    std::int64_t next = 0;
    for (const json::Value plan : root.at("plans").elements()) {
        EXPECT_EQ(plan.at("min_num_params").at("lo").integer(), next);
        next = plan.at("min_num_params").at("hi").is_null()
                   ? -1
                   : plan.at("min_num_params").at("hi").integer() + 1;
        for (const char* key : {"units", "units_with_parameters", "largest_unit_numel", "root_numel",
                                "step_ns", "exposed_ns", "sent_bytes"}) {
            plan.at(key).integer(0);
        }
        for (const char* key :
             {"allocated_bytes", "reserved_bytes", "process_bytes", "low_bytes", "high_bytes"}) {
            plan.at("peak").at(key).integer(1);
        }
    }
    EXPECT_EQ(next, -1);
}

TEST(JsonReport, IsTheSameEveryTime) {
    const Swept swept(16, 2);
    EXPECT_EQ(json_report(swept.question(), sweep(swept.question()), "0.1.0"),
              json_report(swept.question(), sweep(swept.question()), "0.1.0"));
}

TEST(TextReport, BeginsWithTheVerdictAndFitsAHundredColumns) {
    for (const std::int64_t batch : {1, 512}) {
        const Swept swept(16, batch);
        const SweepResult result = sweep(swept.question());
        const std::string text = text_report(swept.question(), result);
        EXPECT_THAT(text, testing::StartsWith(result.verdict.text.substr(0, 20)));
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);) {
            EXPECT_LE(line.size(), 100U) << line;
        }
        for (const char* point : {"Units ", "Problems ", "Memory ", "Traffic ", "min_num_params"}) {
            EXPECT_THAT(text, testing::HasSubstr(point));
        }
    }
}

}  // namespace
}  // namespace fsdplan
