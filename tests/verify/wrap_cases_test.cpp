#include <gtest/gtest.h>

#include "support/replay.hpp"

namespace fsdplan {
namespace {

TEST(VerifyWrap, EveryRecordedCaseMatches) {
    const Verification result = test::replay_golden("wrap");
    EXPECT_EQ(result.cases, 3968);
    EXPECT_EQ(result.match, 3968);
    EXPECT_EQ(result.skipped, 0);
    EXPECT_EQ(result.tables, 65);
    EXPECT_EQ(result.tables_match, 65);
}

TEST(VerifyWrap, AFolderWithoutRecordingsIsAnError) {
    EXPECT_THROW(test::replay(FSDPLAN_TEST_DATA "/support"), Error);
}

}  // namespace
}  // namespace fsdplan
