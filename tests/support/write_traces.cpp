#include <filesystem>
#include <fstream>
#include <iostream>

#include "fsdplan/report.hpp"
#include "simulate/schedules.hpp"

// Writes traces and snapshots of schedules made by hand, for the tests that open them with the real programs.
// usage: write_traces FOLDER
namespace fsdplan {
namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20U;

/// Two iterations of three layers as FSDP1 runs them: gathers on a stream of their own, used by compute under
/// record_stream; the limiter; gradients reduced behind backward.
simulated::Script training() {
    simulated::Script script;
    script.schedule.units = {"", "layers.0", "layers.1", "layers.2 \"</script>\" \xc3\xa9"};
    const auto named = [&](std::int32_t op, int unit) {
        script.schedule.ops[static_cast<std::size_t>(op)].unit = unit;
    };
    const std::int32_t shard = script.buffer(100 * mib, Category::shard);
    const std::int32_t states = script.buffer(200 * mib + 4, Category::optimizer);
    script.allocate(shard);
    script.allocate(states);
    std::vector<std::int32_t> full;
    std::vector<std::int32_t> saved;
    std::vector<std::int32_t> gradient;
    std::vector<std::int32_t> reduced;
    for (int layer = 0; layer < 3; ++layer) {
        full.push_back(script.buffer(300 * mib, Category::unsharded, Stream::gather));
        saved.push_back(script.buffer(150 * mib, Category::activation));
        gradient.push_back(script.buffer(300 * mib, Category::gradient));
        reduced.push_back(script.buffer(38 * mib, Category::reduce_output, Stream::reduce));
    }
    std::vector<std::int32_t> freed;
    const auto unit = [&](int layer, bool forward) {
        const auto at = static_cast<std::size_t>(layer);
        script.add({.kind = OpKind::host, .unit = layer + 1, .target = 0});
        if (freed.size() >= 2) {
            script.block(freed.front());
            freed.erase(freed.begin());
        }
        script.allocate(full[at]);
        named(script.gather(0), layer + 1);
        script.join(Stream::compute, Stream::gather);
        if (forward) {
            script.allocate(saved[at]);
        } else {
            script.allocate(gradient[at]);
        }
        named(script.add(
                  {.kind = OpKind::compute, .launches = 12, .bytes = 200 * mib, .flops = 400'000'000'000}),
              layer + 1);
        script.use(full[at], Stream::compute);
        script.free(full[at]);
        freed.push_back(script.record(Stream::compute));
        if (!forward) {
            script.free(saved[at]);
            script.join(Stream::reduce, Stream::compute);
            script.allocate(reduced[at]);
            named(script.reduce(0), layer + 1);
            script.use(gradient[at], Stream::reduce);
            script.free(gradient[at]);
            script.relabel(reduced[at], Category::gradient_shard);
        }
    };
    for (int iteration = 0; iteration < 2; ++iteration) {
        script.iteration();
        for (int layer = 0; layer < 3; ++layer) {
            unit(layer, true);
        }
        for (int layer = 2; layer >= 0; --layer) {
            unit(layer, false);
        }
        script.join(Stream::compute, Stream::reduce);
        script.add({.kind = OpKind::host, .pass = Pass::optimizer, .target = 1, .launches = 10});
        script.add({.kind = OpKind::copy, .pass = Pass::optimizer, .launches = 10, .bytes = 100 * mib});
        for (const std::int32_t buffer : reduced) {
            script.free(buffer);
        }
    }
    return script;
}

class Writer {
public:
    explicit Writer(std::filesystem::path folder) : folder_(std::move(folder)) {
        std::filesystem::create_directories(folder_);
    }

    void simulated(const std::string& name, const simulated::Script& script,
                   const SimulationOptions& options) {
        const Cluster cluster = find_cluster({});
        AllocatorLog log;
        const Run run = simulate(script.schedule, cluster, options, &log);
        write(name, script, run, log);
    }

    /// With the times that the script states.
    void as_stated(const std::string& name, const simulated::Script& script,
                   const AllocatorOptions& allocator) {
        Run run{.timeline = script.played()};
        run.waits = exposed_waits(script.schedule, run.timeline);
        run.iterations = iteration_times(script.schedule, run.timeline, run.waits);
        AllocatorLog log;
        run.memory = device_memory(script.schedule, run.timeline, {.device = 80_GiB, .allocator = allocator},
                                   FreeTiming::by_clock, &log);
        write(name, script, run, log);
    }

private:
    void write(const std::string& name, const simulated::Script& script, const Run& run,
               const AllocatorLog& log) {
        const TraceOptions options{.version = "0.0.0", .plan = name};
        std::ofstream(folder_ / (name + ".trace.json"), std::ios::binary)
            << trace_report(script.schedule, run, options);
        std::ofstream(folder_ / (name + ".snapshot.pickle"), std::ios::binary)
            << snapshot_report(script.schedule, log, options);
    }

    std::filesystem::path folder_;
};

void write_all(const std::filesystem::path& folder) {
    Writer writer(folder);
    const Pricing pricing{.mesh = {.shard = 8}};
    writer.simulated("training", training(), {.pricing = pricing});
    writer.simulated("expandable", training(),
                     {.pricing = pricing,
                      .memory = MemorySetup{.device = 80_GiB, .allocator = {.expandable_segments = true}}});
    writer.simulated("contention", training(),
                     {.pricing = pricing, .contention = usual_contention(find_cluster({}).gpu)});
    writer.simulated("retry", training(), {.pricing = pricing, .memory = MemorySetup{.device = 1900_MiB}});
    writer.simulated("out_of_memory", training(),
                     {.pricing = pricing, .memory = MemorySetup{.device = 900_MiB}});
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
        writer.as_stated("random_" + std::to_string(seed),
                         simulated::random_script(seed, seed == 1 ? 15'000 : 3000),
                         {.expandable_segments = seed == 2});
    }
}

}  // namespace
}  // namespace fsdplan

int main(int count, char** arguments) {
    if (count != 2) {
        std::cerr << "usage: write_traces FOLDER\n";
        return 2;
    }
    fsdplan::write_all(arguments[1]);
    return 0;
}
