#include <benchmark/benchmark.h>

#include "fsdplan/checkpoint_cost.hpp"
#include "fsdplan/wrap.hpp"
#include "models.hpp"

// How long is one question about what a checkpoint costs, and all ways of saving beside each other?
namespace fsdplan::bench {
namespace {

CheckpointQuestion llama_405b_on_512(const char* runtime) {
    const ModelGraph model = import_model(llama_405b);
    const ModuleTree tree = flatten(model);
    TrainingJob job;
    job.runtime = runtime;
    job.mesh = {.replicate = 1, .shard = 512};
    PolicySpec blocks;
    blocks.kind = PolicySpec::Kind::module_classes;
    blocks.classes = block_classes(tree);
    const WrapOptions options{.world_size = 512};
    return {.layout = state_layout(model, wrap(tree, blocks, options), job),
            .cluster = find_cluster({.gpus = 512})};
}

void one_checkpoint(benchmark::State& state, const char* runtime, const char* type) {
    const CheckpointQuestion question = llama_405b_on_512(runtime);
    const CheckpointFormat& format = checkpoint_format(type, question.layout.runtime, "type");
    for ([[maybe_unused]] auto _ : state) {
        benchmark::DoNotOptimize(checkpoint_cost(question, format));
    }
}

void all_checkpoints(benchmark::State& state, const char* runtime) {
    const CheckpointQuestion question = llama_405b_on_512(runtime);
    for ([[maybe_unused]] auto _ : state) {
        benchmark::DoNotOptimize(checkpoint_costs(question));
    }
}

BENCHMARK_CAPTURE(one_checkpoint, fsdp1_full, "fsdp1", "full")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(one_checkpoint, fsdp1_dcp, "fsdp1", "dcp")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(one_checkpoint, fsdp2_full, "fsdp2", "full,offload")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(one_checkpoint, fsdp2_dcp, "fsdp2", "dcp")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(all_checkpoints, fsdp1, "fsdp1")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(all_checkpoints, fsdp2, "fsdp2")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdplan::bench
