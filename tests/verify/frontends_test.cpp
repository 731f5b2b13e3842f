#include <gtest/gtest.h>

#include "base/file.hpp"
#include "support/replay.hpp"
#include "support/temp_folder.hpp"

namespace fsdplan {
namespace {

TEST(VerifyFrontends, EveryRecordedCaseMatches) {
    const Verification result = test::replay_golden("frontends");
    EXPECT_EQ(result.differ, 0);
    EXPECT_EQ(result.cases, result.match + result.skipped);
    // Three calls of prepare() that no setting tells of, and two back ends of torchtitan that start from
    // DTensors.
    EXPECT_EQ(result.skipped, 5);
    EXPECT_EQ(result.cases, 750);
}

/// The line that comes of a recording with the first occurrence of `from` replaced.
std::string message_of(const char* file, const std::string& from, const std::string& to) {
    const test::TempFolder folder;
    std::string text = read_text(FSDPLAN_TEST_DATA "/golden/frontends/" + std::string(file));
    const std::size_t at = text.find(from);
    if (at == std::string::npos) {
        return "no " + from;
    }
    text.replace(at, from.size(), to);
    try {
        test::replay(folder.write("x.json", text).string());
    } catch (const Error& error) {
        const std::string message = error.what();
        return message.substr(message.find("x.json"));
    }
    return "read";
}

TEST(VerifyFrontends, DamagedRowsAreErrorsWithTheirPlace) {
    EXPECT_EQ(message_of("accelerate/precision.json", R"(["model.layers.0","float32"])", R"(["model"])"),
              "x.json#/rows/0/unit_dtypes/1: expected a path and a dtype, found an array");
    EXPECT_EQ(message_of("accelerate/mapping.json.gz", R"("env":{"FSDP_VERSION":"1")", R"("env":{"X":"1")"),
              "x.json#/environment/0/env: the key \"FSDP_VERSION\" is missing");
    EXPECT_EQ(
        message_of("torchtitan/llama3.json.gz", R"("spmd_backend":"partial_dtensor")", R"("spmd_backend":1)"),
        "x.json#/cases/0/parallelism/spmd_backend: expected a string, found 1");
}

}  // namespace
}  // namespace fsdplan
