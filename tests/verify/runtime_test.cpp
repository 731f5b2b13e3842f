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

TEST(VerifyRuntime, EveryRecordedStepMatches) {
    const Verification result = replayed("runtime");
    EXPECT_EQ(result.cases, 242);
    EXPECT_EQ(result.match, 170 + 30);       // runs, and what errors.json holds
    EXPECT_EQ(result.skipped, 26 + 14 + 2);  // act_*, tracker_*, and two of the errors
}

TEST(VerifyRuntime, EveryRandomlyDrawnStepMatches) {
    const Verification result = replayed("runtime_random");
    EXPECT_EQ(result.cases, 54);
    EXPECT_EQ(result.match, 54);
    EXPECT_EQ(result.skipped, 0);
}

TEST(VerifyRuntime, StepsOfTheNewestVersionMatch) {
    const Verification result = replayed("runtime-2.15");
    EXPECT_EQ(result.cases, 5);
    EXPECT_EQ(result.match, 5);
    EXPECT_EQ(result.skipped, 0);
}

}  // namespace
}  // namespace fsdplan
