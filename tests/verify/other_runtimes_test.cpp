#include <gtest/gtest.h>

#include "fsdplan/verify.hpp"

namespace fsdplan {
namespace {

TEST(VerifyOtherRuntimes, EveryRecordedCaseMatches) {
    const std::string folder = FSDPLAN_TEST_DATA "/golden/runtime_other";
    const Verification result = verify(std::span(&folder, 1));
    for (const Difference& d : result.differences) {
        ADD_FAILURE() << d.case_name << ": " << d.where << "\n  expected " << d.expected << "\n  got "
                      << d.got;
    }
    EXPECT_EQ(result.cases, 137);
    EXPECT_EQ(result.match, 137);
    EXPECT_EQ(result.skipped, 0);
}

}  // namespace
}  // namespace fsdplan
