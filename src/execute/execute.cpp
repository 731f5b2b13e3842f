#include "fsdplan/execute.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "execute/schedule_pass.hpp"

namespace fsdplan {
namespace {

/// Times of every repeat that make an estimate.
class Times {
public:
    void add(std::int64_t ns) { ns_.push_back(ns); }
    bool empty() const { return ns_.empty(); }
    Estimate estimate() {
        std::ranges::sort(ns_);
        return {.value = ns_[ns_.size() / 2], .low = ns_.front(), .high = ns_.back()};
    }

private:
    std::vector<std::int64_t> ns_;
};

void expect_same_schedule(const Schedule& schedule, Backend& backend) {
    // 53 bits, as a message has room for them.
    const auto hash = static_cast<std::int64_t>(std::hash<std::string>{}(to_text(schedule)) >> 11U);
    const std::vector<std::int64_t> all = backend.of_all_ranks(hash);
    const auto other = std::ranges::find_if(all, [&](std::int64_t of) { return of != all.front(); });
    if (other != all.end()) {
        throw Error(ErrorKind::input, "run",
                    "rank " + std::to_string(other - all.begin()) +
                        " was asked to execute another schedule than rank 0");
    }
}

std::int64_t requested_peak(const Schedule& schedule, const MemoryProfile& memory) {
    std::int64_t now = 0;
    std::int64_t peak = 0;
    for (const MemoryChange& change : memory.changes) {
        const std::int64_t bytes = schedule.buffers[static_cast<std::size_t>(change.buffer)].bytes;
        now += schedule.ops[static_cast<std::size_t>(change.op)].kind == OpKind::relabel ? 0
               : change.delta_bytes < 0                                                  ? -bytes
                                                                                         : bytes;
        peak = std::max(peak, now);
    }
    return peak;
}

class Executor {
public:
    Executor(const Schedule& schedule, Backend& backend, const ExecutionOptions& options)
        : schedule_(schedule),
          backend_(backend),
          options_(options),
          collectives_(schedule.collectives.size()),
          last_begin_(schedule.iteration_begin.empty()
                          ? 0
                          : static_cast<std::size_t>(schedule.iteration_begin.back())) {}

    Execution run() {
        expect_same_schedule(schedule_, backend_);
        backend_.prepare(schedule_, options_.mesh);
        for (int repeat = 0; repeat < options_.repeats; ++repeat) {
            repeat_once();
        }
        Run& run = out_.run;
        run.method = Method::measured;
        run.step_ns = step_.estimate();
        run.exposed_ns = exposed_.estimate();
        run.reserved_bytes = exactly(run.memory->reserved_peak_bytes.value_or(0));
        run.collectives.resize(collectives_.size());
        for (std::size_t row = 0; row < collectives_.size(); ++row) {
            if (!collectives_[row].empty()) {
                run.collectives[row] = {.ns = collectives_[row].estimate(), .origin = Origin::measured};
            }
        }
        if (run.memory->out_of_memory) {
            run.notes.emplace_back("memory ran out: times go on as if it had not");
        }
        gather_ranks();
        return std::move(out_);
    }

private:
    void gather_ranks() {
        out_.ranks.resize(static_cast<std::size_t>(backend_.ranks()));
        const auto gather = [this](std::int64_t mine, const auto& put) {
            const std::vector<std::int64_t> all = backend_.of_all_ranks(mine);
            for (std::size_t rank = 0; rank < all.size(); ++rank) {
                put(out_.ranks[rank], all[rank]);
            }
        };
        const MemoryProfile& memory = *out_.run.memory;
        gather(requested_peak(schedule_, memory),
               [](RankResult& r, std::int64_t v) { r.requested_bytes = v; });
        gather(memory.peak.allocated_bytes, [](RankResult& r, std::int64_t v) { r.allocated_bytes = v; });
        gather(out_.run.reserved_bytes->value, [](RankResult& r, std::int64_t v) { r.reserved_bytes = v; });
        gather(out_.sent_bytes, [](RankResult& r, std::int64_t v) { r.sent_bytes = v; });
        gather(out_.run.step_ns.value, [](RankResult& r, std::int64_t v) { r.step_ns = v; });
        gather(memory.out_of_memory ? 1 : 0, [](RankResult& r, std::int64_t v) { r.out_of_memory = v != 0; });
    }

    void repeat_once() {
        backend_.start();
        SchedulePass pass(schedule_, backend_, options_.memory);
        pass.play();
        Run& run = out_.run;
        run.timeline = std::move(pass.timeline());
        run.memory = pass.take_memory();
        run.waits = exposed_waits(schedule_, run.timeline);
        run.iterations = iteration_times(schedule_, run.timeline, run.waits);
        step_.add(run.iterations.empty() ? 0 : run.iterations.back().ns());
        exposed_.add(run.iterations.empty() ? 0 : run.iterations.back().exposed_ns);
        note_collectives();
    }

    void note_collectives() {
        out_.sent_bytes = 0;
        for (std::size_t op = last_begin_; op < schedule_.ops.size(); ++op) {
            if (schedule_.ops[op].kind == OpKind::collective) {
                const OpSpan span = backend_.span(op);
                collectives_[static_cast<std::size_t>(schedule_.ops[op].target)].add(span.end_ns -
                                                                                     span.start_ns);
                out_.sent_bytes += backend_.sent_bytes(op);
            }
        }
    }

    const Schedule& schedule_;
    Backend& backend_;
    const ExecutionOptions& options_;
    Execution out_;
    Times step_;
    Times exposed_;
    std::vector<Times> collectives_;  // by row of Schedule::collectives
    std::size_t last_begin_;
};

}  // namespace

Execution execute(const Schedule& schedule, Backend& backend, const ExecutionOptions& options) {
    FSDPLAN_ASSERT(options.repeats > 0, "something is to be measured");
    return Executor(schedule, backend, options).run();
}

Schedule scaled(Schedule schedule, double scale) {
    for (Op& op : schedule.ops) {
        if (op.kind == OpKind::compute) {
            op.target = -1;
            op.launches = 0;
            op.flops = std::llround(static_cast<double>(op.flops) * scale);
            op.bytes = std::llround(static_cast<double>(op.bytes) * scale);
        } else if (op.kind == OpKind::copy || op.kind == OpKind::to_device || op.kind == OpKind::to_host) {
            op.bytes = std::llround(static_cast<double>(op.bytes) * scale);
        }
    }
    return schedule;
}

HostCosts executor_host_costs() {
    // One lock and one wake-up of a thread for what is issued; a few hundred instructions for the rest.
    const Estimate issue{2'000, 500, 10'000};
    const Estimate nothing{};
    return {.launch_ns = nothing,
            .unit_hook_ns = nothing,
            .optimizer_ns = nothing,
            .collective_ns = issue,
            .transfer_ns = issue,
            .event_ns = issue,
            .allocator_ns = {500, 100, 5'000},
            .wait_ns = {10'000, 2'000, 50'000}};
}

}  // namespace fsdplan
