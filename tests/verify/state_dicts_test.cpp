#include <gtest/gtest.h>

#include <algorithm>

#include "support/replay.hpp"

namespace fsdplan {
namespace {

TEST(VerifyStateDicts, EveryRecordedCallMatches) {
    const Verification result = test::replay_golden("state_dict/cost.json");
    EXPECT_EQ(result.cases, 90);
    EXPECT_EQ(result.match, 90);
    EXPECT_EQ(result.skipped, 0);
    // Numbers beside the cases that are not compared: the lengths of the pickles of DCP.
    EXPECT_TRUE(std::ranges::all_of(
        result.skips, [](const Skip& skip) { return skip.reason.find("pickled") != std::string::npos; }));
}

TEST(VerifyStateDicts, EveryRecordedPairMatches) {
    const Verification result = test::replay_golden("state_dict/compat.json");
    EXPECT_EQ(result.cases, 239);
    EXPECT_EQ(result.match, 239);
    EXPECT_EQ(result.skipped, 0);
}

}  // namespace
}  // namespace fsdplan
