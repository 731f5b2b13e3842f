#include <benchmark/benchmark.h>

#include <vector>

#include "fsdplan/model.hpp"
#include "fsdplan/wrap.hpp"
#include "models.hpp"

// How long until the boundaries of one threshold, and of all of them, are known?
namespace fsdplan::bench {
namespace {

const ModuleTree& tree_405b() {
    static const ModuleTree tree = flatten(import_model(llama_405b));
    return tree;
}

const ModuleTree& tree_of_experts() {
    static const ModuleTree tree = flatten(experts_as_modules(false));
    return tree;
}

const ModuleTree& tree_of_different_experts() {
    static const ModuleTree tree = flatten(experts_as_modules(true));
    return tree;
}

void evaluate(benchmark::State& state, const ModuleTree& tree) {
    const SizeBoundaries boundaries(tree);
    std::vector<ModuleIndex> wrapped;
    for ([[maybe_unused]] auto _ : state) {
        boundaries.evaluate(default_min_num_params, wrapped);
        benchmark::DoNotOptimize(wrapped.data());
    }
    state.counters["modules"] = static_cast<double>(tree.size());
    state.counters["units"] = static_cast<double>(wrapped.size() + 1);  // and the root
}

void all_plans(benchmark::State& state, const ModuleTree& tree) {
    const SizeBoundaries boundaries(tree);
    std::size_t plans = 0;
    for ([[maybe_unused]] auto _ : state) {
        plans = boundaries.all().size();
    }
    state.counters["plans"] = static_cast<double>(plans);
}

void prepare(benchmark::State& state, const ModuleTree& tree) {
    for ([[maybe_unused]] auto _ : state) {
        benchmark::DoNotOptimize(SizeBoundaries(tree));
    }
}

PolicySpec size_policy() {
    return {.kind = PolicySpec::Kind::recursive,
            .members = {{.name = "size"}},
            .classes = {},
            .rules = {},
            .calls = {}};
}

WrapOptions eight_ranks() {
    WrapOptions options;
    options.world_size = 8;
    return options;
}

/// With names, parameters, flat sizes and diagnostics.
void whole_plan(benchmark::State& state, const ModuleTree& tree) {
    const WrapOptions options = eight_ranks();
    for ([[maybe_unused]] auto _ : state) {
        benchmark::DoNotOptimize(wrap(tree, size_policy(), options));
    }
}

void all_whole_plans(benchmark::State& state, const ModuleTree& tree) {
    const WrapOptions options = eight_ranks();
    for ([[maybe_unused]] auto _ : state) {
        benchmark::DoNotOptimize(thresholds(tree, size_policy(), options));
    }
}

void evaluate_405b(benchmark::State& state) {
    evaluate(state, tree_405b());
}
void all_plans_405b(benchmark::State& state) {
    all_plans(state, tree_405b());
}
void prepare_405b(benchmark::State& state) {
    prepare(state, tree_405b());
}
void whole_plan_405b(benchmark::State& state) {
    whole_plan(state, tree_405b());
}
void all_whole_plans_405b(benchmark::State& state) {
    all_whole_plans(state, tree_405b());
}
BENCHMARK(evaluate_405b)->Unit(benchmark::kMicrosecond);
BENCHMARK(all_plans_405b)->Unit(benchmark::kMicrosecond);
BENCHMARK(prepare_405b)->Unit(benchmark::kMicrosecond);
BENCHMARK(whole_plan_405b)->Unit(benchmark::kMicrosecond);
BENCHMARK(all_whole_plans_405b)->Unit(benchmark::kMicrosecond);

void evaluate_experts(benchmark::State& state) {
    evaluate(state, tree_of_experts());
}
void all_plans_experts(benchmark::State& state) {
    all_plans(state, tree_of_experts());
}
void evaluate_different_experts(benchmark::State& state) {
    evaluate(state, tree_of_different_experts());
}
void whole_plan_experts(benchmark::State& state) {
    whole_plan(state, tree_of_experts());
}
BENCHMARK(evaluate_experts)->Unit(benchmark::kMicrosecond);
BENCHMARK(all_plans_experts)->Unit(benchmark::kMicrosecond);
BENCHMARK(evaluate_different_experts)->Unit(benchmark::kMicrosecond);
BENCHMARK(whole_plan_experts)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fsdplan::bench
