#include <gtest/gtest.h>

#include <algorithm>

#include "support/replay.hpp"

namespace fsdplan {
namespace {

TEST(VerifyStateDicts, EveryRecordedCallAndPairMatches) {
    const Verification result = test::replay_golden("state_dict");
    EXPECT_EQ(result.cases, 90 + 239);
    EXPECT_EQ(result.match, 90 + 239);
    EXPECT_EQ(result.skipped, 0);
    // Numbers beside the cases that are not compared: pickles of DCP. None is off by a late buffer.
    EXPECT_TRUE(std::ranges::all_of(
        result.skips, [](const Skip& skip) { return skip.reason.find("pickled") != std::string::npos; }));
}

}  // namespace
}  // namespace fsdplan
