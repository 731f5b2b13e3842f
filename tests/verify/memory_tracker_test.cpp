#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/file.hpp"
#include "support/replay.hpp"
#include "support/temp_folder.hpp"
#include "verify/memory_tracker_live.hpp"

namespace fsdplan {
namespace {

const std::string golden = FSDPLAN_TEST_DATA "/golden";

/// The recording of the small model, with one text in place of another, beside its export.
Verification replayed_with(const std::string& text, const std::string& instead) {
    const test::TempFolder folder;
    const std::string exported = "exports/mlp@f32.json.gz";
    std::filesystem::create_directory(folder.path() / "exports");
    std::filesystem::copy_file(golden + "/" + exported, folder.path() / exported);
    std::string recording = read_text(golden + "/runtime/tracker_mlp.json");
    const std::size_t at = recording.find(text);
    EXPECT_NE(at, std::string::npos);
    recording.replace(at, text.size(), instead);
    return test::replay(folder.write("tracker_mlp.json", recording).string());
}

TEST(VerifyMemoryTracker, EveryRecordedPeakMatches) {
    std::int64_t recordings = 0;
    for (const auto& entry : std::filesystem::directory_iterator(golden + "/runtime")) {
        const std::string file = entry.path().filename().string();
        if (file.starts_with("tracker_")) {
            EXPECT_EQ(test::replay_golden("runtime/" + file).match, 1) << file;
            ++recordings;
        }
    }
    EXPECT_EQ(recordings, 14);
}

TEST(VerifyMemoryTracker, PeaksOfPlainModelsAreExactButForTheLoss) {
    // A training loop keeps the loss, 4 bytes, which the recorded one did not.
    for (const Deviation& d : test::replay_golden("runtime/tracker_llama_ac_outside.json").deviations) {
        EXPECT_EQ(d.got - d.expected, 4) << d.case_name;
    }
}

TEST(VerifyMemoryTracker, AWrongPeakDiffers) {
    const Verification result = replayed_with("\"Total\":109456", "\"Total\":111456");
    EXPECT_EQ(result.differ, 1);
    ASSERT_EQ(result.differences.size(), 1U);
    EXPECT_EQ(result.differences[0].where, "iteration 0 peak, Total");
    EXPECT_EQ(result.differences[0].expected, "111456 bytes");
}

TEST(VerifyMemoryTracker, AWrongCategoryDiffers) {
    const Verification result = replayed_with("\"All Gather\":20928", "\"All Gather\":10464");
    ASSERT_EQ(result.differences.size(), 1U);
    EXPECT_EQ(result.differences[0].where, "iteration 0 peak, All Gather");
}

TEST(VerifyMemoryTracker, WhatIsLeftAfterBackwardDiffers) {
    const Verification result =
        replayed_with("\"Inputs\":512,\"Total\":21968", "\"Inputs\":512,\"Total\":31968");
    ASSERT_EQ(result.differences.size(), 1U);
    EXPECT_EQ(result.differences[0].where, "iteration 0 after backward, Total");
}

TEST(VerifyMemoryTracker, ThePeakThatTheTrackerGetsWrongIsNotCompared) {
    const Verification result = test::replay_golden("runtime/tracker_llama3-8b_fake.json");
    EXPECT_EQ(result.match, 1);
    EXPECT_EQ(result.skipped, 0);
    ASSERT_EQ(result.skips.size(), 1U);
    EXPECT_NE(result.skips[0].case_name.find("iteration 0 peak of 9540526676 bytes"), std::string::npos);
    EXPECT_NE(result.skips[0].reason.find("FSDPMemTracker is wrong here"), std::string::npos);
}

TEST(VerifyMemoryTracker, ARecordingWithoutAnExportIsSkippedWithAReason) {
    const Verification result = replayed_with("\"model\":\"mlp\"", "\"model\":\"mlp2\"");
    ASSERT_EQ(result.skips.size(), 1U);
    EXPECT_EQ(result.skips[0].reason, "there is no export mlp2@f32 of its model");
}

TEST(VerifyMemoryTracker, AModelsNameLeadsToNoOtherFolder) {
    const Verification result = replayed_with("\"model\":\"mlp\"", "\"model\":\"../exports/mlp\"");
    EXPECT_EQ(result.skipped, 1);
}

constexpr std::size_t at(TrackerCategory category) {
    return static_cast<std::size_t>(category);
}

Op op(OpKind kind, Pass pass, std::int32_t buffer) {
    return {.kind = kind, .pass = pass, .target = buffer};
}

TEST(TrackedIterations, AResultOfForwardIsAnActivationAndOneOfBackwardTemporary) {
    Schedule schedule;
    schedule.buffers = {{.bytes = 100, .category = Category::activation},
                        {.bytes = 10, .category = Category::activation}};
    schedule.iteration_begin = {0};
    schedule.ops = {op(OpKind::allocate, Pass::forward, 0), op(OpKind::allocate, Pass::recompute, 1),
                    op(OpKind::free, Pass::backward, 0), op(OpKind::free, Pass::backward, 1)};
    const TrackerSnapshot inside = tracked_iterations(schedule, {})[0].peak;
    EXPECT_EQ(inside.total(), 110);
    EXPECT_EQ(inside.bytes[at(TrackerCategory::activation)], 100);
    EXPECT_EQ(inside.bytes[at(TrackerCategory::temp)], 10);
    // Where the recomputation goes through a unit's hooks, the tracker takes it for a forward.
    EXPECT_EQ(tracked_iterations(schedule, {.recompute_units = true})[0]
                  .peak.bytes[at(TrackerCategory::activation)],
              110);
}

TEST(TrackedIterations, WhatLivesOnCountsInTheNextPeak) {
    Schedule schedule;
    schedule.buffers = {{.bytes = 8, .category = Category::shard},
                        {.bytes = 5, .category = Category::optimizer}};
    schedule.iteration_begin = {1, 2};
    schedule.ops = {op(OpKind::allocate, Pass::forward, 0), op(OpKind::allocate, Pass::optimizer, 1),
                    op(OpKind::compute, Pass::forward, -1)};
    const std::vector<TrackedIteration> got = tracked_iterations(schedule, {});
    ASSERT_EQ(got.size(), 2U);
    EXPECT_EQ(got[0].peak.total(), 13);
    EXPECT_EQ(got[1].peak.total(), 13);
    EXPECT_EQ(got[1].peak.bytes[at(TrackerCategory::optimizer_state)], 5);
}

}  // namespace
}  // namespace fsdplan
