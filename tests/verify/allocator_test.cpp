#include <gtest/gtest.h>

#include "fsdplan/verify.hpp"

namespace fsdplan {
namespace {

void expect_all_match(const std::string& folder, std::int64_t cases) {
    const Verification result = verify(std::span(&folder, 1));
    for (const Difference& d : result.differences) {
        ADD_FAILURE() << d.case_name << ": " << d.where << "\n  expected " << d.expected << "\n  got "
                      << d.got;
    }
    EXPECT_EQ(result.cases, cases);
    EXPECT_EQ(result.match, cases);
    EXPECT_EQ(result.skipped, 0);
}

// 20 configurations with 79 traces each, and 37 option strings.
TEST(VerifyAllocator, EveryTraceMatchesStepByStep) {
    expect_all_match(FSDPLAN_TEST_DATA "/golden/allocator", 20 * 79 + 37);
}

}  // namespace
}  // namespace fsdplan
