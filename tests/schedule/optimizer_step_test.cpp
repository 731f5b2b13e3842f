#include "schedule/optimizer_step.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/schedule_bytes.hpp"

namespace fsdplan {
namespace {

TrainingJob job_with(std::string_view optimizer) {
    TrainingJob job;
    job.optimizer = parse_optimizer(optimizer);
    return job;
}

/// Of a parameter in float32 without a shape of its own.
std::int64_t state_bytes(const TrainingJob& job, std::int64_t numel) {
    Schedule schedule;
    Emitter emit(schedule);
    create_states(emit, job, {.numel = numel});
    std::int64_t bytes = 0;
    for (const Buffer& state : schedule.buffers) {
        bytes += state.on_host ? 0 : state.bytes;
    }
    return bytes;
}

Schedule step(const TrainingJob& job, const std::vector<std::int64_t>& numels) {
    Schedule schedule;
    Emitter emit(schedule);
    LocalParameters parameters;
    for (const std::int64_t numel : numels) {
        parameters.add({.numel = numel});
    }
    emit_optimizer(emit, job, parameters, Workload{}.multiprocessors);
    return schedule;
}

std::int64_t most_temporary_bytes(const TrainingJob& job, const std::vector<std::int64_t>& numels) {
    const std::vector<std::int64_t> bytes =
        test::bytes_over_time(step(job, numels), Category::optimizer_temporary);
    EXPECT_EQ(bytes.back(), 0);
    return std::ranges::max(bytes);
}

TEST(OptimizerStates, AdamKeepsTwoMoments) {
    EXPECT_EQ(state_bytes(job_with("adamw"), 1000), 8000);  // the count of steps lies on the host
    TrainingJob fused = job_with("adamw:fused");
    EXPECT_EQ(state_bytes(fused, 1000), 8004);
    fused.offload = true;
    EXPECT_EQ(state_bytes(fused, 1000), 0);
}

TEST(OptimizerStates, FewBitsOnlyForWholeBlocks) {
    // 16 blocks of 256 with a float32 scale each, and a value for each of 256 codes.
    EXPECT_EQ(state_bytes(job_with("adam8bit"), 4096), 2 * (4096 + 16 * 4 + 1024));
    EXPECT_EQ(state_bytes(job_with("adam8bit"), 4095), 2 * 4 * 4095);
    EXPECT_EQ(state_bytes(job_with("adam8bit"), 4097), 2 * 4 * 4097);
    // 32 blocks of 128, and 16 codes.
    EXPECT_EQ(state_bytes(job_with("adam4bit"), 4096), 2 * (2048 + 32 * 4 + 64));
    EXPECT_EQ(state_bytes(job_with("adam8bit-bnb"), 4097), 2 * (4097 + 17 * 4));
}

TEST(OptimizerStep, TemporariesFollowTheImplementation) {
    EXPECT_EQ(most_temporary_bytes(job_with("adamw"), {900, 100}), 4000);
    EXPECT_EQ(most_temporary_bytes(job_with("adamw:for-loop"), {900, 100}), 2 * 3600);
    // Behind one whose quotient is still there.
    EXPECT_EQ(most_temporary_bytes(job_with("adamw:for-loop"), {900, 100, 900}), 400 + 2 * 3600);
    EXPECT_EQ(most_temporary_bytes(job_with("adamw:fused"), {900, 100}), 0);
}

TEST(OptimizerStep, OffloadLeavesTheDeviceAlone) {
    TrainingJob job = job_with("adamw");
    job.offload = true;
    const Schedule schedule = step(job, {1000});
    ASSERT_EQ(schedule.ops.size(), 1U);
    EXPECT_EQ(schedule.ops.front().kind, OpKind::host);
}

TEST(OptimizerStep, AdafactorWaitsForTheNormsOfEachParameter) {
    const Schedule schedule = step(job_with("adafactor"), {1000, 1000});
    const auto is_block = [](const Op& op) { return op.kind == OpKind::block; };
    EXPECT_EQ(std::ranges::count_if(schedule.ops, is_block), 2 * 2);
}

TEST(OptimizerRegistry, NamesAreReadBackAndUnknownOnesAnswered) {
    for (const OptimizerInfo* entry : optimizers()) {
        const Optimizer read = parse_optimizer(entry->name);
        EXPECT_EQ(parse_optimizer(name(read)), read);
    }
    const auto message = [](std::string_view text) -> std::string {
        try {
            parse_optimizer(text);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_NE(message("adamv").find("did you mean \"adam"), std::string::npos) << message("adamv");
    EXPECT_NE(message("shampoo").find("unknown optimizer \"shampoo\""), std::string::npos);
    EXPECT_NE(message("adafactor:fused").find("expected one of for-loop, foreach"), std::string::npos);
    EXPECT_NE(message("muon:foreach").find("takes nothing after a colon"), std::string::npos);
}

TEST(OptimizerRegistry, WhatPyTorchRefusesIsRefused) {
    const auto refused = [](std::string_view runtime, std::string_view optimizer) {
        TrainingJob job = job_with(optimizer);
        job.runtime = runtime;
        job.strategy = fsdplan::runtime(runtime).strategies.front();
        try {
            check(job, 1);
        } catch (const Error&) {
            return true;
        }
        return false;
    };
    EXPECT_TRUE(refused("fsdp2", "adafactor"));
    EXPECT_TRUE(refused("fsdp2", "sgd:fused"));
    EXPECT_TRUE(refused("fsdp1", "muon"));
    EXPECT_TRUE(refused("zero3", "muon"));
    EXPECT_FALSE(refused("fsdp2", "muon"));
    EXPECT_FALSE(refused("ddp", "adafactor"));
    EXPECT_FALSE(refused("fsdp1", "sgd:fused"));
}

}  // namespace
}  // namespace fsdplan
