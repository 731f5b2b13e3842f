#include "fsdplan/simulate.hpp"

#include <algorithm>
#include <cmath>

#include "simulate/device_memory.hpp"
#include "simulate/event_simulator.hpp"
#include "simulate/lanes.hpp"

namespace fsdplan {
namespace {

std::int64_t end_of(const Estimate& estimate, Bound bound) {
    return bound == Bound::low ? estimate.low : bound == Bound::high ? estimate.high : estimate.value;
}

/// The caching allocator in the event simulator's loop: it sees how many operations each stream has done, and
/// the host pays for its retries.
class AllocatorUnderTime final : public MemoryUnderTime {
public:
    AllocatorUnderTime(const Schedule& schedule, const MemorySetup& setup, Bound bound, AllocatorLog* log,
                       Timeline& times)
        : schedule_(schedule),
          memory_(schedule, setup, log),
          retry_ns_(end_of(setup.retry_ns, bound)),
          segment_ns_(end_of(setup.segment_ns, bound)),
          times_(times) {}

    Effect on_host(std::size_t op, const std::array<std::int64_t, stream_count>& issued,
                   const std::array<std::int64_t, stream_count>& done) override {
        const OpKind kind = schedule_.ops[op].kind;
        if (memory_.out_of_memory() || kind == OpKind::host || kind == OpKind::mark) {
            return {};
        }
        CachingAllocator& allocator = memory_.allocator();
        for (std::size_t s = 0; s < stream_count; ++s) {
            if (kind == OpKind::free) {
                allocator.issued(static_cast<int>(s), issued[s]);
            } else if (kind == OpKind::allocate) {
                allocator.reached(static_cast<int>(s), done[s]);
            }
        }
        const std::int64_t retries = allocator.statistics().alloc_retries;
        const std::int64_t waits = allocator.statistics().device_waits;
        memory_.apply(op, times_.issued_ns[op]);
        const AllocatorStatistics& after = allocator.statistics();
        Effect effect{.device_must_idle = after.device_waits > waits,
                      .host_ns = (after.alloc_retries - retries) * retry_ns_};
        if (kind == OpKind::allocate && after.alloc_retries > 0) {
            effect.host_ns += memory_.segments_changed() * segment_ns_;
        }
        return effect;
    }

    MemoryProfile take() { return memory_.take(); }

private:
    const Schedule& schedule_;
    DeviceMemory memory_;
    std::int64_t retry_ns_;
    std::int64_t segment_ns_;
    Timeline& times_;
};

struct StepSpan {
    std::int64_t step_ns = 0;
    std::int64_t exposed_ns = 0;
};

/// Of the last iteration; of everything when the schedule does not say where one begins.
StepSpan last_step(const Schedule& schedule, const Timeline& timeline, std::span<const ExposedWait> waits) {
    if (!schedule.iteration_begin.empty()) {
        const IterationTime last = iteration_times(schedule, timeline, waits).back();
        return {.step_ns = last.ns(), .exposed_ns = last.exposed_ns};
    }
    StepSpan span;
    for (const std::int64_t end : timeline.end_ns) {
        span.step_ns = std::max(span.step_ns, end);
    }
    for (const ExposedWait& wait : waits) {
        span.exposed_ns += is_collective(wait.cause) ? wait.end_ns - wait.start_ns : 0;
    }
    return span;
}

Estimate interval(std::int64_t value, std::int64_t low, std::int64_t high) {
    return {value, std::min(value, low), std::max(value, high)};
}

class Simulation {
public:
    Simulation(const Schedule& schedule, const Cluster& cluster, const SimulationOptions& options,
               AllocatorLog* log)
        : schedule_(schedule),
          cluster_(cluster),
          options_(options),
          setup_(options.memory ? *options.memory : usual_memory(cluster, schedule)),
          log_(log) {}

    Run run() {
        run_.collectives = collective_times(schedule_, cluster_, options_.pricing);
        set_time_and_memory();
        set_steps();
        set_reserved();
        add_notes();
        return std::move(run_);
    }

private:
    /// What kernels and copies keep while a collective runs.
    double speed_at(Bound bound) const {
        const Constant& overlap = cluster_.gpu.constants.overlap;
        return bound == Bound::low ? overlap.high : bound == Bound::high ? overlap.low : overlap.value;
    }

    void play_at(Bound bound, Timeline& out) {
        price(schedule_, cluster_, options_.pricing, run_.collectives, bound, times_);
        play(schedule_, times_, speed_at(bound), out);
    }

    MemoryProfile play_with_memory(Bound bound, AllocatorLog* log, Timeline& out) {
        AllocatorUnderTime memory(schedule_, setup_, bound, log, out);
        const std::int64_t permille = std::llround(1000.0 * speed_at(bound));
        const Contention usual{.compute_permille = permille, .copy_permille = permille};
        play_events(schedule_, times_, options_.contention.any() ? options_.contention : usual, &memory, out);
        return memory.take();
    }

    void set_time_and_memory() {
        play_at(Bound::value, run_.timeline);
        run_.memory = device_memory(schedule_, run_.timeline, setup_, FreeTiming::by_clock, log_);
        if (options_.contention.any() || run_.memory->alloc_retries > 0) {
            run_.method = Method::event_simulator;
            run_.memory = play_with_memory(Bound::value, log_, run_.timeline);
        }
        run_.waits = exposed_waits(schedule_, run_.timeline);
        run_.iterations = iteration_times(schedule_, run_.timeline, run_.waits);
    }

    StepSpan step_at(Bound bound) {
        Timeline timeline;
        play_at(bound, timeline);
        if (bound == Bound::high && run_.method == Method::event_simulator) {
            play_with_memory(bound, nullptr, timeline);
        }
        return last_step(schedule_, timeline, exposed_waits(schedule_, timeline));
    }

    void set_steps() {
        const StepSpan value = last_step(schedule_, run_.timeline, run_.waits);
        const StepSpan low = step_at(Bound::low);
        const StepSpan high = step_at(Bound::high);
        run_.step_ns = interval(value.step_ns, low.step_ns, high.step_ns);
        run_.exposed_ns = interval(value.exposed_ns, std::min(low.exposed_ns, high.exposed_ns),
                                   std::max(low.exposed_ns, high.exposed_ns));
        const std::int64_t ranks = options_.pricing.mesh.ranks();
        if (ranks > 1) {
            run_.stragglers = with_stragglers(run_.step_ns.value, options_.straggler_sigma, ranks);
        }
    }

    void set_reserved() {
        const auto peak = [&](FreeTiming timing) {
            return device_memory(schedule_, run_.timeline, setup_, timing).reserved_peak_bytes.value_or(0);
        };
        const std::int64_t value = run_.memory->reserved_peak_bytes.value_or(0);
        // Without record_stream nothing depends on how far the device is.
        const bool shared =
            std::ranges::any_of(schedule_.ops, [](const Op& op) { return op.kind == OpKind::use; });
        run_.reserved_bytes = shared
                                  ? interval(value, peak(FreeTiming::at_once), peak(FreeTiming::when_known))
                                  : exactly(value);
        const ProcessBytes process = process_bytes(cluster_, communicators(schedule_));
        run_.process_bytes = *run_.reserved_bytes + process.context + process.nccl;
    }

    void add_notes() {
        const auto computes = [](const Op& op) { return op.kind == OpKind::compute; };
        const auto has_work = [](const Op& op) {
            return op.kind == OpKind::compute && op.flops + op.bytes + op.launches > 0;
        };
        if (std::ranges::any_of(schedule_.ops, computes) && std::ranges::none_of(schedule_.ops, has_work)) {
            run_.notes.emplace_back("the schedule does not say what computations cost: they take no time");
        }
        const bool workspace = std::ranges::any_of(
            schedule_.buffers, [](const Buffer& buffer) { return buffer.category == Category::workspace; });
        if (!workspace && cluster_.gpu.cublas_workspace_bytes > 0) {
            run_.notes.push_back("cuBLAS workspaces are not in the schedule: " +
                                 std::to_string(cluster_.gpu.cublas_workspace_bytes) +
                                 " bytes more on each stream that multiplies matrices");
        }
        if (run_.memory->out_of_memory) {
            run_.notes.emplace_back("memory ran out: times go on as if it had not");
        }
        if (!options_.contention.any()) {
            run_.notes.emplace_back("collectives do not lose to kernels here");
        }
    }

    const Schedule& schedule_;
    const Cluster& cluster_;
    const SimulationOptions& options_;
    MemorySetup setup_;
    AllocatorLog* log_;
    OpTimes times_;
    Run run_;
};

}  // namespace

Run simulate(const Schedule& schedule, const Cluster& cluster, const SimulationOptions& options,
             AllocatorLog* log) {
    return Simulation(schedule, cluster, options, log).run();
}

}  // namespace fsdplan
