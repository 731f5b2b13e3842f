#include <benchmark/benchmark.h>

#include <array>
#include <string>

#include "fsdplan/operators.hpp"
#include "fsdplan/simulate.hpp"
#include "models.hpp"

// How long does it take to say what a training step does: its schedule, its times and what its memory holds?
// Whole models from their configurations, a unit for each block, one operation a module and direction.
namespace fsdplan::bench {
namespace {

constexpr const char* llama_70b = "llama3-70b";
constexpr const char* llama_8b = "llama3-8b";
// As in a recording of PyTorch's memory tracker.
constexpr const char* llama_8b_two_layers =
    FSDPLAN_TEST_DATA "/golden/exports/llama3-8b@bf16_batch1_seq2048.json.gz";
constexpr Bytes without_limit = 4'096_GiB;

/// One operation a leaf and direction; what it saves has the width of its parameters.
std::vector<CallWork> work_of(const ModuleTree& tree, std::int64_t tokens) {
    std::vector<CallWork> work(tree.size());
    std::int64_t width = 1;
    for (std::size_t row = 0; row < tree.size(); ++row) {
        std::int64_t numel = 0;
        for (const TensorIndex t : tree.parameters(static_cast<ModuleIndex>(row))) {
            const Tensor& tensor = tree.tensors[static_cast<std::size_t>(t)];
            numel += tensor.numel;
            width = tensor.shape.front();
        }
        work[row] = {.flops = 2 * tokens * numel,
                     .backward_flops = 4 * tokens * numel,
                     .bytes = 6 * tokens * width,
                     .backward_bytes = 10 * tokens * width,
                     .saved_bytes = 2 * tokens * width};
    }
    return work;
}

/// A model, wrapped per block, and a job on so many GPUs.
struct Training {
    Training(const char* name, const char* runtime, std::int64_t gpus, int of_iterations)
        : tree(flatten(import_model(name))),
          cluster(find_cluster({.cluster = {}, .gpu = {}, .gpus = gpus, .gpus_per_node = {}, .memory = {}})),
          iterations(of_iterations) {
        job.runtime = runtime;
        job.mesh = {.replicate = 1, .shard = gpus};
        const std::array<std::string, 1> policy{"blocks"};
        const PolicySpec spec = parse_policy(policy, tree);
        const bool by_policy = fsdplan::runtime(runtime).wraps_by_policy;
        plan =
            by_policy ? wrap_fsdp1(tree, spec, wrap_options(job)) : wrap_fsdp2(tree, spec, wrap_options(job));
        work = work_of(tree, job.tokens());
        pricing.mesh = job.mesh;
        schedule = lowered();
        setup = usual_memory(cluster, schedule);
        setup.device = without_limit;
        collectives = collective_times(schedule, cluster, pricing);
        price(schedule, cluster, pricing, collectives, Bound::value, times);
        play(schedule, times, cluster.gpu.constants.overlap.value, timeline);
    }

    Schedule lowered() const {
        return lower({.tree = tree,
                      .plan = plan,
                      .job = job,
                      .work = work,
                      .loss = {.saved_bytes = 1 << 29, .temporary_bytes = 1 << 30},
                      .workspace_bytes = cluster.gpu.cublas_workspace_bytes,
                      .iterations = iterations});
    }

    ModuleTree tree;
    Cluster cluster;
    int iterations;
    TrainingJob job;
    WrapPlan plan;
    std::vector<CallWork> work;

    Pricing pricing;
    Schedule schedule;
    MemorySetup setup;
    std::vector<CollectiveTime> collectives;
    OpTimes times;
    Timeline timeline;
};

void describe(benchmark::State& state, const Training& training) {
    const auto ops = static_cast<double>(training.schedule.ops.size());
    state.counters["ops"] = ops;
    state.counters["units"] = static_cast<double>(training.schedule.units.size());
    state.counters["time/op"] =
        benchmark::Counter(ops, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
    state.counters["a_second"] = benchmark::Counter(1, benchmark::Counter::kIsIterationInvariantRate);
}

void lower_step(benchmark::State& state, Training& training) {
    for ([[maybe_unused]] auto _ : state) {
        const Schedule schedule = training.lowered();
        benchmark::DoNotOptimize(schedule.ops.data());
    }
    describe(state, training);
}

void price_step(benchmark::State& state, Training& training) {
    for ([[maybe_unused]] auto _ : state) {
        training.collectives = collective_times(training.schedule, training.cluster, training.pricing);
        price(training.schedule, training.cluster, training.pricing, training.collectives, Bound::value,
              training.times);
        benchmark::DoNotOptimize(training.times.device_ns.data());
    }
    describe(state, training);
}

void play_step(benchmark::State& state, Training& training) {
    for ([[maybe_unused]] auto _ : state) {
        play(training.schedule, training.times, training.cluster.gpu.constants.overlap.value,
             training.timeline);
        benchmark::DoNotOptimize(training.timeline.end_ns.data());
    }
    describe(state, training);
}

void allocate_step(benchmark::State& state, Training& training) {
    for ([[maybe_unused]] auto _ : state) {
        const MemoryProfile profile =
            device_memory(training.schedule, training.timeline, training.setup, FreeTiming::by_clock);
        benchmark::DoNotOptimize(profile.peak.allocated_bytes);
    }
    describe(state, training);
}

// Everything from the schedule to time and memory.
void time_and_memory(const Schedule& schedule, Training& training) {
    training.collectives = collective_times(schedule, training.cluster, training.pricing);
    price(schedule, training.cluster, training.pricing, training.collectives, Bound::value, training.times);
    play(schedule, training.times, training.cluster.gpu.constants.overlap.value, training.timeline);
    const MemoryProfile profile =
        device_memory(schedule, training.timeline, training.setup, FreeTiming::by_clock);
    benchmark::DoNotOptimize(profile.peak.allocated_bytes);
}

void whole_step(benchmark::State& state, Training& training) {
    for ([[maybe_unused]] auto _ : state) {
        time_and_memory(training.lowered(), training);
    }
    describe(state, training);
}

// … and intervals, waits and what may be reserved at least and at most: all that the planner asks.
void simulate_step(benchmark::State& state, Training& training) {
    SimulationOptions options;
    options.pricing = training.pricing;
    options.memory = training.setup;
    for ([[maybe_unused]] auto _ : state) {
        const Schedule schedule = training.lowered();
        const Run run = simulate(schedule, training.cluster, options);
        benchmark::DoNotOptimize(run.step_ns.value);
    }
    describe(state, training);
}

// The same from the model's operators: tens of them a block and direction, each with its memory.

struct Described {
    explicit Described(const char* name) : model(import_model(name)), tree(flatten(model)) {}
    OperatorGraph operators() const {
        const std::int64_t sequence = model.recorded_batch ? model.longest_sequence.value_or(1) : 4096;
        return model.operators(tree, {.batch = 1, .sequence = sequence, .compute = DType::bfloat16});
    }
    ModelGraph model;
    ModuleTree tree;
};

void describe_operators(benchmark::State& state, const char* model) {
    const Described described(model);
    std::size_t operators = 0;
    for ([[maybe_unused]] auto _ : state) {
        operators = described.operators().operators.size();
        benchmark::DoNotOptimize(operators);
    }
    state.counters["operators"] = static_cast<double>(operators);
}
BENCHMARK_CAPTURE(describe_operators, 8b, llama_8b);
BENCHMARK_CAPTURE(describe_operators, 405b, llama_405b);

void step_of_operators(benchmark::State& state, const char* model, std::int64_t gpus) {
    const OperatorGraph operators = Described(model).operators();
    Training training(model, "fsdp2", gpus, 1);
    for ([[maybe_unused]] auto _ : state) {
        const Schedule schedule = lower({.tree = training.tree,
                                         .plan = training.plan,
                                         .job = training.job,
                                         .operators = &operators,
                                         .workspace_bytes = training.cluster.gpu.cublas_workspace_bytes,
                                         .iterations = 1});
        time_and_memory(schedule, training);
        state.counters["ops"] = static_cast<double>(schedule.ops.size());
    }
}
BENCHMARK_CAPTURE(step_of_operators, 8b, llama_8b, 8);
BENCHMARK_CAPTURE(step_of_operators, 405b, llama_405b, 512);
BENCHMARK_CAPTURE(step_of_operators, 8b_two_layers, llama_8b_two_layers, 8);

void step(benchmark::State& state, void (*part)(benchmark::State&, Training&), const char* model,
          const char* runtime, std::int64_t gpus, int iterations) {
    Training training(model, runtime, gpus, iterations);
    part(state, training);
}

#define FSDPLAN_STEP_BENCHMARKS(name, model, runtime, gpus)                           \
    BENCHMARK_CAPTURE(step, name##_lower, lower_step, model, runtime, gpus, 1);       \
    BENCHMARK_CAPTURE(step, name##_price, price_step, model, runtime, gpus, 1);       \
    BENCHMARK_CAPTURE(step, name##_play, play_step, model, runtime, gpus, 1);         \
    BENCHMARK_CAPTURE(step, name##_allocate, allocate_step, model, runtime, gpus, 1); \
    BENCHMARK_CAPTURE(step, name##_whole, whole_step, model, runtime, gpus, 1)

FSDPLAN_STEP_BENCHMARKS(70b_fsdp1, llama_70b, "fsdp1", 8);
FSDPLAN_STEP_BENCHMARKS(70b_fsdp2, llama_70b, "fsdp2", 8);
FSDPLAN_STEP_BENCHMARKS(405b_fsdp1, llama_405b, "fsdp1", 8);
FSDPLAN_STEP_BENCHMARKS(405b_fsdp2, llama_405b, "fsdp2", 8);
BENCHMARK_CAPTURE(step, 405b_fsdp1_16384_gpus_whole, whole_step, llama_405b, "fsdp1", 16384, 1);
BENCHMARK_CAPTURE(step, 405b_fsdp2_16384_gpus_whole, whole_step, llama_405b, "fsdp2", 16384, 1);
BENCHMARK_CAPTURE(step, 70b_fsdp2_2_iterations_whole, whole_step, llama_70b, "fsdp2", 8, 2);
BENCHMARK_CAPTURE(step, 8b_fsdp2_2_iterations_simulate, simulate_step, llama_8b, "fsdp2", 8, 2);
BENCHMARK_CAPTURE(step, 70b_fsdp2_2_iterations_simulate, simulate_step, llama_70b, "fsdp2", 8, 2);

}  // namespace
}  // namespace fsdplan::bench
