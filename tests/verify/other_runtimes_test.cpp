#include <gtest/gtest.h>

#include "fsdplan/verify.hpp"

namespace fsdplan {
namespace {

Verification replayed(const std::string& folder) {
    const std::string path = FSDPLAN_TEST_DATA "/golden/" + folder;
    Verification result = verify(std::span(&path, 1));
    for (const Difference& d : result.differences) {
        ADD_FAILURE() << d.case_name << ": " << d.where << "\n  expected " << d.expected << "\n  got "
                      << d.got;
    }
    return result;
}

TEST(VerifyOtherRuntimes, EveryRecordedCaseMatches) {
    const Verification result = replayed("runtime_other");
    EXPECT_EQ(result.cases, 137);
    EXPECT_EQ(result.match, 137);
    EXPECT_EQ(result.skipped, 0);
}

TEST(VerifyOtherRuntimes, SoDoSettingsThatTheFirstSetLeavesOut) {
    const Verification result = replayed("runtime_other_more");
    EXPECT_EQ(result.cases, 15);
    EXPECT_EQ(result.match, 15);
    EXPECT_EQ(result.skipped, 0);
}

}  // namespace
}  // namespace fsdplan
