#include <benchmark/benchmark.h>

#include "simulate/schedules.hpp"

// How long does a step take to simulate: a schedule of FSDP2's kind, 80 layers, two iterations?
namespace fsdplan::bench {
namespace {

using simulated::Script;

void forward_and_backward(Script& script, std::int32_t full, std::int32_t saved, bool forward) {
    script.host(100'000);
    script.allocate(full);
    script.add({.kind = OpKind::copy, .stream = Stream::pre_gather, .launches = 2, .bytes = 1 << 20}, 9'000,
               6'000);
    script.join(Stream::gather, Stream::pre_gather);
    script.gather(700'000);
    script.join(Stream::compute, Stream::gather);
    script.add({.kind = OpKind::copy, .launches = 9, .bytes = 1 << 23}, 90'000, 6'000);
    if (forward) {
        script.allocate(saved);
    }
    for (int i = 0; i < 12; ++i) {
        script.compute(50'000 + i, 6'000);
    }
    if (!forward) {
        script.free(saved);
        script.add({.kind = OpKind::copy, .launches = 1, .bytes = 1 << 20}, 9'000, 6'000);
        script.join(Stream::reduce, Stream::compute);
        script.reduce(700'000);
    }
    script.free(full);
}

Script training(int layers, int iterations) {
    Script script;
    std::vector<std::int32_t> saved;
    saved.reserve(static_cast<std::size_t>(layers));
    for (int layer = 0; layer < layers; ++layer) {
        saved.push_back(script.buffer(std::int64_t{300} << 20U, Category::activation));
    }
    const std::int32_t full = script.buffer(std::int64_t{400} << 20U, Category::unsharded, Stream::gather);
    for (int iteration = 0; iteration < iterations; ++iteration) {
        script.iteration();
        for (int layer = 0; layer < 2 * layers; ++layer) {
            const int which = layer < layers ? layer : 2 * layers - 1 - layer;
            forward_and_backward(script, full, saved[static_cast<std::size_t>(which)], layer < layers);
        }
    }
    return script;
}

void per_operation(benchmark::State& state, const Script& script) {
    state.counters["time/op"] =
        benchmark::Counter(static_cast<double>(script.schedule.ops.size()),
                           benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
    state.counters["ops"] = static_cast<double>(script.schedule.ops.size());
}

void play_step(benchmark::State& state) {
    const Script script = training(80, 2);
    Timeline timeline;
    for ([[maybe_unused]] auto _ : state) {
        play(script.schedule, script.times, 1.0, timeline);
        benchmark::DoNotOptimize(timeline.end_ns.data());
    }
    per_operation(state, script);
}
BENCHMARK(play_step);

void play_random_operations(benchmark::State& state) {
    const Script script = simulated::random_script(1, 20'000);
    Timeline timeline;
    for ([[maybe_unused]] auto _ : state) {
        play(script.schedule, script.times, 1.0, timeline);
        benchmark::DoNotOptimize(timeline.end_ns.data());
    }
    per_operation(state, script);
}
BENCHMARK(play_random_operations);

void price_step(benchmark::State& state) {
    const Script script = training(80, 2);
    const Cluster cluster = find_cluster({});
    const Pricing pricing{.mesh = {.replicate = 1, .shard = 8}};
    const std::vector<CollectiveTime> collectives = collective_times(script.schedule, cluster, pricing);
    OpTimes times;
    for ([[maybe_unused]] auto _ : state) {
        price(script.schedule, cluster, pricing, collectives, Bound::value, times);
        benchmark::DoNotOptimize(times.device_ns.data());
    }
    per_operation(state, script);
}
BENCHMARK(price_step);

void play_step_as_events(benchmark::State& state) {
    const Script script = training(80, 2);
    const Contention contention = usual_contention(find_cluster({}).gpu);
    Timeline timeline;
    for ([[maybe_unused]] auto _ : state) {
        play_events(script.schedule, script.times, contention, timeline);
        benchmark::DoNotOptimize(timeline.end_ns.data());
    }
    per_operation(state, script);
}
BENCHMARK(play_step_as_events);

}  // namespace
}  // namespace fsdplan::bench
