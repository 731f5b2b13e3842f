#include <benchmark/benchmark.h>

#include <array>
#include <string>

#include "fsdplan/search.hpp"
#include "models.hpp"

// How long does it take to find the fastest plan that fits, over the whole space, on all cores?
namespace fsdplan::bench {
namespace {

struct Question {
    Question(const char* name, std::int64_t gpus)
        : model(import_model(name)),
          tree(flatten(model)),
          search{
              .question = {
                  .model = model,
                  .tree = tree,
                  .policy = {},
                  .sweep_thresholds = false,
                  .wrap = {},
                  .jobs = {},
                  .cluster = find_cluster(
                      {.cluster = {}, .gpu = "h100-sxm", .gpus = gpus, .gpus_per_node = {}, .memory = {}})}} {
        const std::array<std::string, 1> policy{"blocks"};
        search.question.policy = parse_policy(policy, tree);
        TrainingJob job;
        job.sequence = 4096;
        job.mesh = {.replicate = 1, .shard = gpus};
        search.question.jobs = {job};
    }

    ModelGraph model;
    ModuleTree tree;
    SearchQuestion search;
};

void plan(benchmark::State& state, const char* name, std::int64_t gpus) {
    const Question question(name, gpus);
    SearchResult result;
    for (auto _ : state) {
        result = search(question.search);
    }
    state.counters["simulated"] = static_cast<double>(result.proof.simulated);
    state.counters["gap_percent"] = 100.0 * result.proof.gap;
}

BENCHMARK_CAPTURE(plan, llama_8b_on_8, "llama3-8b", 8)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, llama_70b_on_64, "llama3-70b", 64)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan, llama_405b_on_512, llama_405b, 512)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdplan::bench
