#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/dcp_totals.hpp"
#include "fsdplan/checkpoint_cost.hpp"

namespace fsdplan {
namespace {

/// One matrix of 1000 x 1000 float32 (4,000,000 bytes) and a vector of 10 (40 bytes).
StateLayout two_tensors(StateRuntime runtime, std::int64_t ranks) {
    StateLayout layout;
    layout.runtime = runtime;
    layout.mesh = {.replicate = 1, .shard = ranks};
    layout.sharded = ranks > 1;
    layout.device_mesh = runtime == StateRuntime::fsdp2;
    layout.tensors = {{.shape = {1000, 1000}}, {.shape = {10}}};
    layout.entries = {{"matrix", 0}, {"vector", 1}};
    layout.optimizer = optimizer_states({});
    if (runtime == StateRuntime::fsdp1) {
        const std::int64_t padded = round_up(1'000'010, ranks);
        layout.units = {{.path = "",
                         .tensors = {0, 1},
                         .entries = {0, 1},
                         .offsets = {0, 1'000'000},
                         .aligned_numel = 1'000'010,
                         .padded_numel = padded,
                         .shard_numel = padded / ranks}};
    }
    return layout;
}

CheckpointQuestion question_about(StateLayout layout) {
    return {.layout = std::move(layout), .cluster = find_cluster({.gpus = 8})};
}

TEST(StateCall, FullOnEveryRankKeepsTheModelAndGathersItOnce) {
    const StateCall call =
        state_call(two_tensors(StateRuntime::fsdp1, 4), {.form = StateRequest::Form::full}, 3);
    // Gathered: 1,000,010 elements padded to 1,000,012; the copies are made before they go.
    EXPECT_EQ(call.device_peak_bytes, 4'000'048 + 4'000'040);
    EXPECT_EQ(call.device_kept_bytes, 4'000'040);
    EXPECT_EQ(call.returned_tensors, 2);
    ASSERT_EQ(call.events.size(), 1U);
    EXPECT_EQ(call.events.front(), (StateEvent{StateOperation::all_gather, 1'000'012, 4'000'048}));
}

TEST(StateCall, OffloadLeavesOneUnitOnTheDevice) {
    const StateRequest request{.form = StateRequest::Form::full, .offload = true, .rank0_only = true};
    const StateLayout layout = two_tensors(StateRuntime::fsdp1, 4);
    EXPECT_EQ(state_call(layout, request, 0).device_peak_bytes, 4'000'048);
    EXPECT_EQ(state_call(layout, request, 0).host_peak_bytes, 2 * 4'000'040);
    EXPECT_EQ(state_call(layout, request, 1).host_peak_bytes, 0);
    EXPECT_EQ(state_call(layout, request, 1).device_peak_bytes, 4'000'048) << "every rank gathers";
}

TEST(StateCall, PiecesOfFsdp2CostNothing) {
    const StateCall call =
        state_call(two_tensors(StateRuntime::fsdp2, 4), {.form = StateRequest::Form::sharded}, 3);
    EXPECT_TRUE(call.events.empty());
    EXPECT_EQ(call.device_peak_bytes, 0);
    EXPECT_EQ(call.returned_bytes, 250 * 4000 + 1 * 4) << "250 rows, and the last of 3 + 3 + 3 + 1";
}

TEST(StateCall, OneRankSendsNothing) {
    for (const StateRuntime runtime : {StateRuntime::fsdp1, StateRuntime::fsdp2}) {
        const StateCall call = state_call(two_tensors(runtime, 1), {.form = StateRequest::Form::full}, 0);
        EXPECT_TRUE(call.events.empty());
    }
}

TEST(DcpTotals, AreTheSumOfTheFiles) {
    for (const StateRuntime runtime : {StateRuntime::fsdp1, StateRuntime::fsdp2}) {
        for (const std::int64_t ranks : {1, 2, 3, 4, 8, 16}) {
            const StateLayout layout = two_tensors(runtime, ranks);
            std::int64_t files = 0;
            std::int64_t largest = 0;
            for (const DcpFile& file : dcp_save(layout, true).files) {
                files += file.bytes;
                largest = std::max(largest, file.bytes);
            }
            const DcpTotals totals = dcp_totals(layout, true);
            EXPECT_EQ(totals.bytes, files) << ranks << " ranks";
            EXPECT_NEAR(static_cast<double>(totals.largest_rank_bytes), static_cast<double>(largest), 30'000)
                << ranks << " ranks";
        }
    }
}

TEST(CheckpointCost, TheRankThatWritesAloneMayTakeTooLong) {
    CheckpointQuestion question = question_about(two_tensors(StateRuntime::fsdp2, 8));
    const CheckpointFormat& full = checkpoint_format("full,offload", StateRuntime::fsdp2, "--save-type");
    EXPECT_FALSE(checkpoint_cost(question, full).exceeds_timeout);
    question.storage.rank_bytes_per_s = 1000.0;  // 12 MB take more than three hours
    EXPECT_TRUE(checkpoint_cost(question, full).exceeds_timeout);
    const CheckpointFormat& dcp = checkpoint_format("dcp", StateRuntime::fsdp2, "--save-type");
    EXPECT_FALSE(checkpoint_cost(question, dcp).exceeds_timeout) << "nobody waits inside a tensor collective";
}

TEST(CheckpointCost, AStoreThatIsSlowerThanItsWritersDecides) {
    CheckpointQuestion question = question_about(two_tensors(StateRuntime::fsdp2, 8));
    const CheckpointFormat& dcp = checkpoint_format("dcp", StateRuntime::fsdp2, "--save-type");
    const std::int64_t alone = checkpoint_cost(question, dcp).write_ns.value;
    question.storage.store_bytes_per_s = question.storage.rank_bytes_per_s;
    EXPECT_GT(checkpoint_cost(question, dcp).write_ns.value, 7 * alone);
}

TEST(CheckpointCost, WhatRunsOutIsNotRecommended) {
    const CheckpointQuestion question = question_about(two_tensors(StateRuntime::fsdp1, 8));
    const std::vector<CheckpointCost> costs = checkpoint_costs(question);
    const CheckpointCost* any = recommended_format(costs, 0, std::int64_t{1} << 40U);
    ASSERT_NE(any, nullptr);
    EXPECT_EQ(recommended_format(costs, 100, 100), nullptr) << "each of FSDP1's portable ways gathers";
}

TEST(CheckpointFormat, AnUnknownTypeNamesTheNearest) {
    try {
        checkpoint_format("full,rank0", StateRuntime::fsdp2, "--save-type");
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("\"full,offload\""), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace fsdplan
