#include <gtest/gtest.h>

#include "support/replay.hpp"
#include "support/temp_folder.hpp"

namespace fsdplan {
namespace {

/// A recording of these cases, replayed.
Verification replayed_cases(const std::string& cases) {
    const test::TempFolder folder;
    const std::string path = folder.write(
        "errors.json",
        R"({"format": "fsdplan.error-golden", "version": 1, "world": 8, "cases": [)" + cases + "]}");
    return test::replay(path);
}

constexpr const char* refused_3 =
    R"({"name": "fsdp2_reshard_int_3", "what": "groups of 3", "error": "ValueError",
        "message": "If passing reshard_after_forward as an int, it should be a factor of 8, not 3"})";

TEST(VerifyErrors, EveryRecordedRefusalMatches) {
    const Verification result = test::replay_golden("runtime/errors.json");
    EXPECT_EQ(result.cases, 32);
    EXPECT_EQ(result.match, 30);
    ASSERT_EQ(result.skips.size(), 2U);
    EXPECT_EQ(result.skips[0].case_name, "errors fsdp2_reshard_float");
    EXPECT_EQ(result.skips[1].reason, "the module tree does not record strides");
}

TEST(VerifyErrors, AnotherTypeAnotherTextOrNoneDiffers) {
    EXPECT_EQ(replayed_cases(refused_3).match, 1);
    const auto with = [](const std::string& from, const std::string& to) {
        std::string text = refused_3;
        text.replace(text.find(from), from.size(), to);
        return replayed_cases(text);
    };
    EXPECT_EQ(with("ValueError", "TypeError").differ, 1);
    EXPECT_EQ(with("not 3", "not 5").differ, 1);
    EXPECT_EQ(with("not 3", "not 3, says torch").match, 1);  // ours is how it begins
    const Verification none = with("\"ValueError\"", "null");
    ASSERT_EQ(none.differences.size(), 1U);
    EXPECT_EQ(none.differences[0].expected, "no error");
    EXPECT_EQ(none.differences[0].where, "groups of 3");
    EXPECT_EQ(with("int_3", "int_4").differ, 1);  // which is accepted
}

TEST(VerifyErrors, AnUnknownNameIsSkippedWithAReason) {
    const Verification result =
        replayed_cases(R"({"name": "fsdp3_of_the_future", "what": "something", "error": null})");
    EXPECT_EQ(result.cases, 1);
    EXPECT_EQ(result.skipped, 1);
    ASSERT_EQ(result.skips.size(), 1U);
    EXPECT_EQ(result.skips[0].case_name, "errors fsdp3_of_the_future");
    EXPECT_EQ(result.skips[0].reason, "the recording names no model");
}

TEST(VerifyErrors, AnotherVersionIsAnError) {
    const test::TempFolder folder;
    const std::string path =
        folder
            .write("errors.json",
                   R"({"format": "fsdplan.error-golden", "version": 2, "world": 8, "cases": []})")
            .string();
    EXPECT_THROW(test::replay(path), Error);
}

TEST(VerifyActivations, ExportsKeepAndComputeWhatWasRecorded) {
    const Verification result = test::replay_golden("runtime/act_llama3-8b_s2048.json");
    EXPECT_EQ(result.match, 1);
}

TEST(VerifyActivations, ARecordingWithoutAnExportIsSkippedWithAReason) {
    const Verification result = test::replay_golden("runtime/act_llama3-8b_fakemask_s2048.json");
    ASSERT_EQ(result.skips.size(), 1U);
    EXPECT_EQ(result.skips[0].reason, "there is no export of this model");
}

}  // namespace
}  // namespace fsdplan
