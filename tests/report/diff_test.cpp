#include "fsdplan/diff.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.hpp"
#include "fsdplan/base.hpp"

namespace fsdplan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A simulated step, as far as a comparison looks at it; `changes` are members that it has besides.
std::string step(const std::string& job, std::int64_t process_bytes, std::int64_t step_ns,
                 const std::string& changes = "") {
    return R"({"format": "fsdplan.result", "version": 1, "command": "simulate", "fsdplan": "0.1.0",
        "model": {"name": "tiny"}, "job": )" +
           job + R"(, "cluster": {"name": "dgx", "gpus": 8}, "runs": true, "plan": "one unit per Block",
        "peak": {"process_bytes": {"value": )" +
           std::to_string(process_bytes) + R"(, "low": 1, "high": 9}}, "step_ns": {"value": )" +
           std::to_string(step_ns) + R"(, "low": )" + std::to_string(step_ns - 10) + R"(, "high": )" +
           std::to_string(step_ns + 10) + "}" + changes + "}";
}

const DiffRow& row(const std::vector<DiffRow>& rows, std::string_view key) {
    const auto found = std::ranges::find(rows, key, &DiffRow::key);
    if (found == rows.end()) {
        throw std::logic_error("no such row");
    }
    return *found;
}

Diff diff(const std::string& a, const std::string& b) {
    return diff_results(a, "a.json", b, "b.json");
}

std::string fault_of(const std::string& a, const std::string& b) {
    try {
        diff(a, b);
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

const std::string batch_1 = R"({"batch": 1, "strategy": "FULL_SHARD"})";
const std::string batch_2 = R"({"batch": 2, "strategy": "FULL_SHARD"})";

TEST(Diff, AResultIsTheSameAsItself) {
    const Diff same = diff(step(batch_1, 4, 100), step(batch_1, 4, 100));
    EXPECT_TRUE(same.same());
    EXPECT_TRUE(same.settings.empty());
    EXPECT_TRUE(same.notes.empty());
    EXPECT_EQ(text_report(same), "the same\n");
}

TEST(Diff, SaysWhatChangedAndWhatItDid) {
    const Diff changed = diff(step(batch_1, 4, 100), step(batch_2, 6, 150));
    ASSERT_EQ(changed.settings.size(), 1U);
    EXPECT_EQ(changed.settings[0].key, "job.batch");
    const DiffRow& peak = row(changed.results, "peak.process_bytes");
    EXPECT_EQ(peak.before, DiffValue(std::int64_t{4}));
    EXPECT_EQ(peak.difference(), 2.0);
    EXPECT_EQ(peak.percent(), 50.0);
    EXPECT_FALSE(row(changed.results, "fits").changed());
    std::vector<std::string> keys;
    for (const DiffRow& r : changed.results) {
        keys.push_back(r.key);
    }
    EXPECT_THAT(keys, ElementsAre("fits", "plan", "peak.process_bytes", "step_ns"));
    EXPECT_TRUE(changed.notes.empty());  // 90..110 and 140..160 ns
}

TEST(Diff, OverlappingEstimatesAreSaid) {
    EXPECT_THAT(diff(step(batch_1, 4, 100), step(batch_2, 4, 120)).notes,
                ElementsAre("the estimates of the step overlap: 90 ns to 110 ns, and 110 ns to 130 ns"));
}

TEST(Diff, AnotherModelIsAnotherQuestion) {
    std::string other = step(batch_1, 4, 100);
    other.replace(other.find("tiny"), 4, "huge");
    const Diff changed = diff(step(batch_1, 4, 100), other);
    EXPECT_THAT(changed.notes,
                ElementsAre("the model differs (tiny, huge): they answer different questions"));
    EXPECT_FALSE(changed.same());
}

TEST(Diff, AnAssumptionThatRepeatsASettingIsNoSecondRow) {
    const auto assumed = [](const char* batch, const char* attention) {
        return std::string(R"(, "assumptions": [{"name": "micro-batch", "value": ")") + batch +
               R"("}, {"name": "attention", "value": ")" + attention + R"("}])";
    };
    const Diff changed =
        diff(step(batch_1, 4, 100, assumed("1", "sdpa")), step(batch_2, 4, 100, assumed("2", "eager")));
    ASSERT_EQ(changed.settings.size(), 2U);
    EXPECT_EQ(changed.settings[1].key, "assumptions.attention");
}

TEST(Diff, AWaitThatIsGoneIsZero) {
    const std::string waits = R"(, "waits": [{"cause": "gather", "ns": 5}, {"cause": "memory", "ns": 7}])";
    const std::string fewer = R"(, "waits": [{"cause": "gather", "ns": 5}])";
    const Diff changed = diff(step(batch_1, 4, 100, waits), step(batch_1, 4, 100, fewer));
    EXPECT_EQ(row(changed.results, "waits.memory.ns").after, DiffValue(std::int64_t{0}));
    EXPECT_EQ(row(changed.results, "waits.memory.ns").percent(), -100.0);
}

/// A sweep of two plans, or the result of `plan`.
std::string sweep(const std::string& recommended) {
    return R"({"format": "fsdplan.result", "version": 1, "command": "sweep", "verdict": {"fits": null},
        "recommended": )" +
           recommended + R"(, "plans": [
        {"label": "blocks", "peak": {"process_bytes": 9}, "step_ns": 5, "memory": [{"term": "loss", "bytes": 2}]},
        {"label": "layers", "peak": {"process_bytes": 7}, "step_ns": 6, "memory": [{"term": "loss", "bytes": 1}]}]})";
}

TEST(Diff, ASweepIsAboutTheRecommendedPlan) {
    const Diff changed = diff(sweep("0"), sweep("1"));
    EXPECT_EQ(row(changed.results, "fits").before, DiffValue(std::string("depends")));
    EXPECT_EQ(row(changed.results, "plan").before, DiffValue(std::string("blocks")));
    EXPECT_EQ(row(changed.results, "plan").after, DiffValue(std::string("layers")));
    EXPECT_EQ(row(changed.results, "memory.loss.bytes").difference(), -1.0);
    const Diff none = diff(sweep("0"), sweep("null"));
    EXPECT_EQ(row(none.results, "plan").after, DiffValue(std::string("layers")));  // the one that needs less
    EXPECT_THAT(none.notes, ElementsAre(HasSubstr("no plan is recommended")));
}

TEST(Diff, APlanIsComparedWithTheOneThatASweepRecommends) {
    const std::string plan = R"({"format": "fsdplan.result", "version": 1, "command": "plan",
        "verdict": {"fits": true, "left_bytes": 3}, "bound": {"step_ns": 4, "gap": 0.25},
        "recommended": {"label": "layers", "peak": {"process_bytes": 6}, "step_ns": 6,
                        "settings": {"batch": "2"}, "wrap_plan": {"mesh": {"shard": 8}, "units": [{"numel": 1}]}}})";
    const Diff changed = diff(sweep("1"), plan);
    EXPECT_EQ(row(changed.results, "peak.process_bytes").difference(), -1.0);
    for (const DiffRow& r : changed.results) {  // what only one of both says is no difference
        EXPECT_NE(r.before, DiffValue{}) << r.key;
        EXPECT_NE(r.after, DiffValue{}) << r.key;
    }
    EXPECT_THAT(changed.notes, ElementsAre(HasSubstr("the command differs (sweep, plan)")));
    const Diff same = diff(plan, plan);
    EXPECT_TRUE(same.same());
    EXPECT_EQ(row(same.results, "bound.gap").before, DiffValue(0.25));
}

TEST(Diff, ResultsWithoutAPlanAreComparedMemberByMember) {
    const auto units = [](const std::string& rank) {
        return R"({"format": "fsdplan.units", "version": 1, "model": "tiny", "rank": )" + rank +
               R"(, "units": [{}, {}], "nested": {"deep": {"key": true}}})";
    };
    const Diff changed = diff(units("0"), units("1"));
    EXPECT_EQ(row(changed.results, "rank").difference(), 1.0);
    EXPECT_EQ(row(changed.results, "units (entries)").before, DiffValue(std::int64_t{2}));
    EXPECT_EQ(row(changed.results, "nested.deep.key").before, DiffValue(true));
}

TEST(Diff, SettingsAreComparedByTheirPaths) {
    const DiffValues a = settings_in_json(R"({"zero": {"stage": 2, "size": 5e8}, "fp16": true})", "a.json");
    const DiffValues b =
        settings_in_json(R"({"zero": {"stage": 3, "size": 5e8, "lists": [1, 2]}, "fp16": true})", "b.json");
    const Diff changed = diff_settings(a, b);
    ASSERT_EQ(changed.settings.size(), 2U);
    EXPECT_EQ(changed.settings[0].key, "zero.stage");
    EXPECT_EQ(changed.settings[1].key, "zero.lists");  // stands where the second file has it
    EXPECT_EQ(changed.settings[1].after, DiffValue(std::string("1, 2")));
    EXPECT_THAT(text_report(changed),
                HasSubstr("  zero.stage                          2                       3"));
}

TEST(Diff, JsonIsAResultThatKeepsNumbers) {
    const Diff changed = diff(step(batch_1, 4, 100), step(batch_2, 6, 150));
    const json::Document document(json_report(changed, "a.json", "b.json", "0"), "diff.json");
    const json::Value root = document.root();
    EXPECT_EQ(root.at("format").string(), "fsdplan.result");
    EXPECT_EQ(root.at("command").string(), "diff");
    EXPECT_FALSE(root.at("same").boolean());
    for (const json::Value r : root.at("results").elements()) {
        if (r.at("key").string() == "step_ns") {
            EXPECT_EQ(r.at("before").integer(), 100);
            EXPECT_EQ(r.at("after").integer(), 150);
            EXPECT_EQ(r.at("difference").integer(), 50);
            EXPECT_EQ(r.at("percent").number(), 50.0);
        }
    }
}

TEST(Diff, WhatIsNoResultIsRefused) {
    EXPECT_THAT(fault_of(step(batch_1, 4, 100), "{"), HasSubstr("b.json: not valid JSON"));
    EXPECT_THAT(fault_of(R"({"format": "fsdplan.result", "version": 2})", step(batch_1, 4, 100)),
                HasSubstr("a.json#/version: expected version 1, found 2"));
    EXPECT_THAT(fault_of(sweep("2"), sweep("1")), HasSubstr("a.json#/recommended"));
    EXPECT_EQ(diff_input(R"({"format": "fsdplan.result"})", "x"), DiffInput::result);
    EXPECT_EQ(diff_input(R"({"train_batch_size": 8})", "x"), DiffInput::settings);
    EXPECT_THROW(diff_input(R"({"format": "fsdplan.module-tree"})", "x"), Error);
    EXPECT_THROW(diff_input("[1]", "x"), Error);
}

}  // namespace
}  // namespace fsdplan
