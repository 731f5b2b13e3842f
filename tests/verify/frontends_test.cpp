#include <gtest/gtest.h>

#include "support/replay.hpp"

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

}  // namespace
}  // namespace fsdplan
