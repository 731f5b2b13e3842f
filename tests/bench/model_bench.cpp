#include <benchmark/benchmark.h>

#include "fsdplan/model.hpp"
#include "models.hpp"
#include "support/checkpoint.hpp"
#include "support/temp_folder.hpp"

// What does a command pay before it can look at a model?
namespace fsdplan::bench {
namespace {

void import_config_405b(benchmark::State& state) {
    for ([[maybe_unused]] auto _ : state) {
        benchmark::DoNotOptimize(import_model(llama_405b));
    }
}
BENCHMARK(import_config_405b)->Unit(benchmark::kMillisecond);

void import_export_405b(benchmark::State& state) {
    for ([[maybe_unused]] auto _ : state) {
        benchmark::DoNotOptimize(import_model(FSDPLAN_TEST_DATA "/bench/llama3.1-405b.export.json.gz"));
    }
}
BENCHMARK(import_export_405b)->Unit(benchmark::kMillisecond);

void import_index_of_90000_tensors(benchmark::State& state) {
    const test::TempFolder folder;
    test::write_expert_checkpoint(folder.path(), 90'000, 40);
    const std::string index = (folder.path() / "model.safetensors.index.json").string();
    for ([[maybe_unused]] auto _ : state) {
        benchmark::DoNotOptimize(import_model(index));
    }
}
BENCHMARK(import_index_of_90000_tensors)->Unit(benchmark::kMillisecond);

void flatten_405b(benchmark::State& state) {
    const ModelGraph graph = import_model(llama_405b);
    for ([[maybe_unused]] auto _ : state) {
        benchmark::DoNotOptimize(flatten(graph));
    }
}
BENCHMARK(flatten_405b)->Unit(benchmark::kMillisecond);

void flatten_experts(benchmark::State& state) {
    const ModelGraph graph = experts_as_modules(false);
    for ([[maybe_unused]] auto _ : state) {
        benchmark::DoNotOptimize(flatten(graph));
    }
}
BENCHMARK(flatten_experts)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdplan::bench
