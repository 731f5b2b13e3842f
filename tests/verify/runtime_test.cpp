#include <gtest/gtest.h>

#include "support/replay.hpp"

namespace fsdplan {
namespace {

using test::replay_golden;

TEST(VerifyRuntime, EveryRecordedStepMatches) {
    const Verification result = replay_golden("runtime");
    EXPECT_EQ(result.cases, 243);
    // Runs, what errors.json holds, act_* with an export, tracker_*.
    EXPECT_EQ(result.match, 171 + 30 + 21 + 14);
    EXPECT_EQ(result.skipped, 5 + 2);  // other act_*, and two of the errors
}

TEST(VerifyRuntime, EveryRandomlyDrawnStepMatches) {
    const Verification result = replay_golden("runtime_random");
    EXPECT_EQ(result.cases, 54);
    EXPECT_EQ(result.match, 54);
    EXPECT_EQ(result.skipped, 0);
}

TEST(VerifyRuntime, StepsOfTheNewestVersionMatch) {
    const Verification result = replay_golden("runtime-2.15");
    EXPECT_EQ(result.cases, 5);
    EXPECT_EQ(result.match, 5);
    EXPECT_EQ(result.skipped, 0);
}

TEST(VerifyRuntime, WithAnExportAsModelPeaksMatchToo) {
    const Verification result = replay_golden("runtime_exports");
    EXPECT_EQ(result.cases, 2);
    EXPECT_EQ(result.match, 2);
    EXPECT_EQ(result.skipped, 0);
}

}  // namespace
}  // namespace fsdplan
