#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/replay.hpp"
#include "support/temp_folder.hpp"

namespace fsdplan {
namespace {

using test::TempFolder;

// 20 configurations with 79 traces each, and 37 option strings.
TEST(VerifyAllocator, EveryTraceMatchesStepByStep) {
    const Verification result = test::replay_golden("allocator");
    EXPECT_EQ(result.cases, 20 * 79 + 37);
    EXPECT_EQ(result.match, 20 * 79 + 37);
}

TEST(VerifyAllocator, SnapshotsWithAWholeHistoryMatchInEveryAddress) {
    const Verification result = test::replay_golden("allocator/snapshots");
    EXPECT_EQ(result.match, 2);
    ASSERT_EQ(result.skips.size(), 1U);
    EXPECT_EQ(result.skips[0].case_name, "bf16_checkpointing_expandable.pickle");
}

// A trace of one request, with one number in it replaced.
std::string fault_of(const std::string& conf, const std::string& op, const std::string& result,
                     const std::string& layout) {
    const TempFolder folder;
    const std::string path = folder.write(
        "x.json", R"({"schema": 1, "torch": "", "name": "x", "conf": ")" + conf +
                      R"(", "traces": [{"name": "t", "memory": 100000000, "fraction": null, "streams": 1,)"
                      R"("events": "manual", "ops": [)" +
                      op + R"(], "results": [)" + result +
                      R"(], "stats": [[512, 512, 100, 2097152, 1, 0, 0]],)"
                      R"("driver": {"0": [["malloc", 0, 2097152]]}, "peaks": [[512, 512, 100, 2097152]],)"
                      R"("layout": [[0, 0, 2097152, 0, "small", [)" +
                      layout + R"(]]], "inactive_split_bytes": 2096640}]})");
    try {
        const Verification out = test::replay(path);
        return out.differences.empty() ? "matches"
                                       : out.differences[0].where + ": " + out.differences[0].expected +
                                             " / " + out.differences[0].got;
    } catch (const Error& error) {
        const std::string text = error.what();
        return text.substr(text.find("x.json") + 6);
    }
}

TEST(VerifyAllocator, WhatDiffersIsNamed) {
    const std::string op = R"(["a", 0, 100, 0])";
    const std::string blocks = "[512, 1], [2096640, 0]";
    EXPECT_EQ(fault_of("", op, "[0, 0, 512]", blocks), "matches");
    EXPECT_EQ(fault_of("", op, "[0, 512, 512]", blocks), "step 0 (a 0 100 0) result: 0 512 512 / 0 0 512");
    EXPECT_EQ(fault_of("", op, "[0, 0, 512]", "[512, 0], [2096640, 0]"),
              "layout: 0 0 2097152 0 small [512 0][2096640 0];  / 0 0 2097152 0 small [512 1][2096640 0]; ");
}

TEST(VerifyAllocator, WrongRecordingsAreErrorsWithTheirPlace) {
    const std::string blocks = "[512, 1], [2096640, 0]";
    EXPECT_EQ(fault_of("", R"(["b", 0, 100, 0])", "0", blocks),
              R"(#/traces/0/ops/0: expected one of the steps a, f, r, c, y, e, k and g, found an array)");
    EXPECT_EQ(fault_of("", R"(["a", 0, 100, 64])", "0", blocks).substr(0, 21), "#/traces/0/ops/0/3: e");
    EXPECT_EQ(fault_of("max_split_size_mb:1", R"(["a", 0, 100, 0])", "0", blocks),
              "#/conf: max_split_size_mb has to be at least the size of large segments, 20, found 1");
}

TEST(VerifyAllocator, ADamagedSnapshotIsAnError) {
    const TempFolder folder;
    const std::string path = folder.write("x.pickle", "\x80\x02}segments");
    try {
        test::replay(path);
        FAIL() << "was read";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::EndsWith("x.pickle at byte 3: takes a value where there is none"));
    }
}

}  // namespace
}  // namespace fsdplan
