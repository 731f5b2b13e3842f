#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "fsdplan/allocator.hpp"

// How long does the caching allocator take for an operation? Bodies of training steps of some thousand
// operations are simulated for every plan of a sweep, so a step has to take well below a millisecond.
namespace fsdplan {
namespace {

struct Op {
    std::int64_t bytes = 0;  // 0: free
    std::int32_t id = 0;
    std::int32_t stream = 0;
};

class Program {
public:
    std::int32_t allocate(std::int64_t bytes, std::int32_t stream = 0) {
        ops_.push_back({.bytes = bytes, .id = ids_, .stream = stream});
        return ids_++;
    }
    void free(std::int32_t id) { ops_.push_back({.id = id}); }
    void free_all(std::vector<std::int32_t>& ids) {
        for (const std::int32_t id : ids) {
            free(id);
        }
        ids.clear();
    }

    const std::vector<Op>& ops() const { return ops_; }
    std::int32_t ids() const { return ids_; }

private:
    std::vector<Op> ops_;
    std::int32_t ids_ = 0;
};

// One FSDP2 step of a decoder with 32 blocks: what one rank of 8 takes and gives back on three streams.
Program training_step() {
    constexpr std::int64_t tokens = 4096;
    constexpr std::int64_t hidden = 4096;
    constexpr std::int64_t ffn = 11008;
    constexpr int blocks = 32;
    constexpr int copy_in = 1;
    constexpr int reduce = 2;
    const std::vector<std::int64_t> parameters{hidden * hidden, hidden * hidden, hidden * hidden,
                                               hidden * hidden, hidden * ffn,    hidden * ffn,
                                               hidden * ffn,    hidden,          hidden};
    std::int64_t unit = 0;
    for (const std::int64_t numel : parameters) {
        unit += numel;
    }
    std::minstd_rand random(1);
    Program program;
    const auto gather = [&] {
        const std::int32_t cast = program.allocate(2 * unit / 8, copy_in);
        const std::int32_t flat = program.allocate(2 * unit, copy_in);
        program.free(cast);
        std::vector<std::int32_t> full;
        for (const std::int64_t numel : parameters) {
            full.push_back(program.allocate(2 * numel));
        }
        program.free(flat);
        return full;
    };
    std::vector<std::vector<std::int32_t>> saved(blocks);
    for (auto& kept : saved) {
        std::vector<std::int32_t> full = gather();
        for (int op = 0; op < 40; ++op) {
            const std::int64_t width = op % 4 == 3 ? ffn : hidden;
            const std::int32_t out = program.allocate(op % 7 == 6 ? 4 * tokens : 2 * tokens * width);
            if (random() % 2 == 0) {
                program.free(out);
            } else {
                kept.push_back(out);
            }
        }
        program.free_all(full);
    }
    std::vector<std::int32_t> gradients;
    for (int block = blocks - 1; block >= 0; --block) {
        std::vector<std::int32_t> full = gather();
        std::vector<std::int32_t> unsharded;
        for (const std::int64_t numel : parameters) {
            unsharded.push_back(program.allocate(2 * numel));
            for (int op = 0; op < 4; ++op) {
                program.free(program.allocate(2 * tokens * (op % 2 == 0 ? hidden : ffn)));
            }
        }
        program.free_all(saved[static_cast<std::size_t>(block)]);
        program.free_all(full);
        const std::int32_t input = program.allocate(4 * unit);
        program.free_all(unsharded);
        gradients.push_back(program.allocate(4 * unit / 8, reduce));
        program.free(input);
    }
    std::vector<std::int32_t> norms;
    for (int n = 0; n < blocks * 9; ++n) {
        norms.push_back(program.allocate(4));
    }
    program.free_all(norms);
    program.free_all(gradients);
    return program;
}

// Sizes over six orders of magnitude, `live` blocks at a time, freed in no order.
Program random_mix(std::size_t live) {
    std::minstd_rand random(2);
    Program program;
    std::vector<std::int32_t> ids;
    for (int n = 0; n < 20'000; ++n) {
        if (ids.size() == live) {
            const std::size_t victim = random() % ids.size();
            program.free(ids[victim]);
            ids[victim] = ids.back();
            ids.pop_back();
        }
        const double exponent = 8.0 + 18.0 * static_cast<double>(random() % 10'000) / 10'000.0;
        ids.push_back(program.allocate(static_cast<std::int64_t>(std::exp2(exponent)),
                                       static_cast<std::int32_t>(random() % 3)));
    }
    program.free_all(ids);
    return program;
}

void play(const Program& program, CachingAllocator& allocator, std::vector<BlockIndex>& blocks) {
    for (const Op& op : program.ops()) {
        if (op.bytes == 0) {
            allocator.free(blocks[static_cast<std::size_t>(op.id)]);
        } else {
            blocks[static_cast<std::size_t>(op.id)] = allocator.allocate(Bytes{op.bytes}, op.stream).block;
        }
    }
}

enum class Start { warm, reset };

void run(benchmark::State& state, const Program& program, Start start, bool expandable = false) {
    AllocatorOptions options;
    options.expandable_segments = expandable;
    CachingAllocator allocator(CachingAllocator::most_memory, options);
    std::vector<BlockIndex> blocks(static_cast<std::size_t>(program.ids()));
    for ([[maybe_unused]] auto _ : state) {
        if (start == Start::reset) {
            allocator.reset();
        }
        play(program, allocator, blocks);
        benchmark::DoNotOptimize(allocator.statistics().reserved_peak_bytes);
    }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(program.ops().size()));
    state.counters["ops"] = static_cast<double>(program.ops().size());
}

void allocator_first_step(benchmark::State& state) {
    run(state, training_step(), Start::reset);
}
BENCHMARK(allocator_first_step);

void allocator_later_step(benchmark::State& state) {
    run(state, training_step(), Start::warm);
}
BENCHMARK(allocator_later_step);

void allocator_later_step_expandable(benchmark::State& state) {
    run(state, training_step(), Start::warm, true);
}
BENCHMARK(allocator_later_step_expandable);

void allocator_random_mix(benchmark::State& state) {
    run(state, random_mix(static_cast<std::size_t>(state.range(0))), Start::warm);
}
BENCHMARK(allocator_random_mix)->Arg(100)->Arg(1000)->Arg(10'000);

}  // namespace
}  // namespace fsdplan
