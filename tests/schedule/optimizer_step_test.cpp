#include "schedule/optimizer_step.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/schedule_bytes.hpp"

namespace fsdplan {
namespace {

std::int64_t device_bytes(const TrainingJob& job, std::int64_t numel) {
    std::int64_t bytes = 0;
    for (const StateBuffer& state : optimizer_states(job, numel, DType::float32)) {
        bytes += state.on_host ? 0 : state.bytes;
    }
    return bytes;
}

std::int64_t temporary_bytes(const TrainingJob& job, const LocalParameters& parameters) {
    Schedule schedule;
    Emitter emit(schedule);
    emit_optimizer(emit, job, parameters);
    const std::vector<std::int64_t> bytes = test::bytes_over_time(schedule, Category::optimizer_temporary);
    EXPECT_EQ(bytes.back(), 0);
    return std::ranges::max(bytes);
}

TEST(OptimizerStates, AdamKeepsTwoMoments) {
    TrainingJob job;
    EXPECT_EQ(device_bytes(job, 1000), 8000);  // the count of steps lies on the host
    job.optimizer.implementation = Optimizer::Implementation::fused;
    EXPECT_EQ(device_bytes(job, 1000), 8004);
    job.offload = true;
    EXPECT_EQ(device_bytes(job, 1000), 0);
}

TEST(OptimizerStates, EightBitsOnlyForLargeTensors) {
    TrainingJob job;
    job.optimizer = {.kind = Optimizer::Kind::adam8bit};
    EXPECT_EQ(device_bytes(job, 4095), 2 * 4 * 4095);
    EXPECT_EQ(device_bytes(job, 4096), 2 * (4096 + 16 * 4));  // 16 blocks of 256 with a scale each
    job.optimizer = {.kind = Optimizer::Kind::sgd};
    EXPECT_EQ(device_bytes(job, 4096), 0);
    job.optimizer = {.kind = Optimizer::Kind::sgd_momentum};
    EXPECT_EQ(device_bytes(job, 4096), 4 * 4096);
}

TEST(OptimizerStep, TemporariesFollowTheImplementation) {
    LocalParameters parameters;
    parameters.add(900, DType::float32);
    parameters.add(100, DType::float32);
    TrainingJob job;
    EXPECT_EQ(temporary_bytes(job, parameters), 4000);
    job.optimizer.implementation = Optimizer::Implementation::for_loop;
    EXPECT_EQ(temporary_bytes(job, parameters), 2 * 3600);
    parameters.add(900, DType::float32);  // behind one whose quotient is still there
    EXPECT_EQ(temporary_bytes(job, parameters), 400 + 2 * 3600);
    job.optimizer.implementation = Optimizer::Implementation::fused;
    EXPECT_EQ(temporary_bytes(job, parameters), 0);
}

}  // namespace
}  // namespace fsdplan
