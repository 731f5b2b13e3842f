#include <benchmark/benchmark.h>

#include "fsdplan/model.hpp"

namespace fsdplan {
namespace {

// What does a command pay before it can look at a model of the library?
void import_config(benchmark::State& state) {
    for (auto _ : state) {
        benchmark::DoNotOptimize(import_model("llama3-8b"));
    }
}
BENCHMARK(import_config)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdplan
