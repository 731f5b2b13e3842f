#include <gtest/gtest.h>

#include "fsdplan/verify.hpp"

namespace fsdplan {
namespace {

TEST(VerifyWrap, EveryRecordedCaseMatches) {
    const std::string folder = FSDPLAN_TEST_DATA "/golden/wrap";
    const Verification result = verify(std::span(&folder, 1));
    for (const Difference& d : result.differences) {
        ADD_FAILURE() << d.case_name << ": " << d.where << "\n  expected " << d.expected << "\n  got "
                      << d.got;
    }
    EXPECT_EQ(result.cases, 3968);
    EXPECT_EQ(result.match, 3968);
    EXPECT_EQ(result.skipped, 0);
    EXPECT_EQ(result.tables, 65);
    EXPECT_EQ(result.tables_match, 65);
}

TEST(VerifyWrap, AFolderWithoutRecordingsIsAnError) {
    const std::string folder = FSDPLAN_TEST_DATA "/support";
    EXPECT_THROW(verify(std::span(&folder, 1)), Error);
}

}  // namespace
}  // namespace fsdplan
