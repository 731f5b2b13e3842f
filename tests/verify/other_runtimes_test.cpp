#include <gtest/gtest.h>

#include "support/replay.hpp"

namespace fsdplan {
namespace {

using test::replay_golden;

TEST(VerifyOtherRuntimes, EveryRecordedCaseMatches) {
    const Verification result = replay_golden("runtime_other");
    EXPECT_EQ(result.cases, 137);
    EXPECT_EQ(result.match, 137);
    EXPECT_EQ(result.skipped, 0);
}

TEST(VerifyOtherRuntimes, SoDoSettingsThatTheFirstSetLeavesOut) {
    const Verification result = replay_golden("runtime_other_more");
    EXPECT_EQ(result.cases, 15);
    EXPECT_EQ(result.match, 15);
    EXPECT_EQ(result.skipped, 0);
}

}  // namespace
}  // namespace fsdplan
