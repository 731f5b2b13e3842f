#include "verify/published/fit.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace fsdplan {
namespace {

const std::string table = FSDPLAN_TEST_DATA "/golden/published/llm-foundry-mpt.json";

/// Small models on 8 to 64 GPUs.
std::vector<TimedRun> small_runs() {
    std::vector<TimedRun> runs = timed_runs(table, "a100-40gb-sxm");
    std::erase_if(runs, [](const TimedRun& run) { return run.run.schedule.ops.size() > 60'000; });
    return runs;
}

TEST(TimedRuns, AreThoseOfTheGpuInTheFilesOrder) {
    const std::vector<TimedRun> runs = small_runs();
    ASSERT_GE(runs.size(), 4U);
    EXPECT_TRUE(std::ranges::is_sorted(runs, {}, &TimedRun::id));
    EXPECT_EQ(runs.back().id, "foundry-135");
    // 104 sequences of 512 tokens on a rank, in three micro-batches; 1,253,886 tokens a second on 8.
    EXPECT_NEAR(runs.back().published_s, 3 * 104 * 512 * 8 / 1253886.0, 1e-6);
}

TEST(FitConstants, FindsTheOnesThatMadeTheTimes) {
    std::vector<TimedRun> runs = small_runs();
    const GpuConstants start = starting_constants(runs.front().run.cluster.gpu);
    GpuConstants truth = start;
    truth.products.value = 0.7;
    truth.memory.value = 0.88;
    std::vector<const TimedRun*> rows;
    for (TimedRun& run : runs) {
        // error = log(predicted / published): what is published becomes what is predicted.
        run.published_s *= std::exp(error_of(run, truth));
        rows.push_back(&run);
    }
    const std::array<std::string_view, 2> names{"products", "memory"};
    const GpuConstants found = fitted(rows, start, names);
    // The interval of the memory's rate is narrow: it holds the fit back, and products make up for it.
    EXPECT_NEAR(found.products.value, truth.products.value, 0.03);
    EXPECT_NEAR(found.memory.value, truth.memory.value, 0.04);
    for (const TimedRun& run : runs) {
        EXPECT_LT(std::abs(error_of(run, found)), 0.02) << run.id;
        EXPECT_GT(std::abs(error_of(run, start)), 0.04) << run.id;
    }
    EXPECT_EQ(found.attention_forward.value, start.attention_forward.value);
}

}  // namespace
}  // namespace fsdplan
