#include "verify/cuda_memory_steps.hpp"

#include <algorithm>

#include "planner/training_schedule.hpp"
#include "verify/recorder_clock.hpp"

namespace fsdplan {
namespace {

/// A stretch of operations that the recorder measured as one.
struct Stretch {
    std::size_t step = 0;
    std::string phase;
    std::size_t begin = 0;
    std::size_t end = 0;
};

/// Where the recorder read the statistics: behind forward (the loss is there), backward, clipping, the step,
/// and what ends it.
std::vector<Stretch> stretches_of(const Schedule& schedule, const TrainingJob& job) {
    std::vector<Stretch> out;
    if (schedule.iteration_begin.empty()) {
        return out;
    }
    auto begin = static_cast<std::size_t>(schedule.iteration_begin.front());
    std::size_t step = 0;
    std::int64_t microbatch = 0;
    const auto close = [&](std::string phase, std::size_t end) {
        out.push_back({.step = step, .phase = std::move(phase), .begin = begin, .end = end});
        begin = end;
    };
    const auto numbered = [&](const char* phase) {
        return job.accumulate > 1 ? phase + ("[" + std::to_string(microbatch) + "]") : std::string(phase);
    };
    for (std::size_t i = begin; i < schedule.ops.size(); ++i) {
        const Op& op = schedule.ops[i];
        const bool after_backward = !out.empty() && out.back().phase.starts_with("backward");
        if (op.pass == Pass::optimizer && job.clip_norm && after_backward) {
            close("clip", i);
        }
        if (op.kind != OpKind::mark) {
            continue;
        }
        switch (static_cast<Mark>(op.detail)) {
            case Mark::loss:
                close(numbered("forward"), i + 1);
                break;
            case Mark::backward_end:
                close(numbered("backward"), i + 1);
                ++microbatch;
                break;
            case Mark::optimizer_step:
                close("optimizer", i + 1);
                break;
            case Mark::zero_grad:
                close("end", i + 1);
                ++step;
                microbatch = 0;
                break;
            default:
                break;
        }
    }
    return out;
}

/// Bytes that a schedule's program holds on the device before each operation.
std::vector<std::int64_t> program_bytes(const Schedule& schedule) {
    std::vector<std::int64_t> out(schedule.ops.size() + 1);
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
        const Op& op = schedule.ops[i];
        const bool moves = op.kind == OpKind::allocate || op.kind == OpKind::free;
        if (moves && !schedule.buffers[static_cast<std::size_t>(op.target)].on_host) {
            bytes += op.kind == OpKind::allocate ? op.bytes : -op.bytes;
        }
        out[i + 1] = bytes;
    }
    return out;
}

MemoryProfile played(const Schedule& schedule, const ModuleTree& tree, const CudaMemoryCase& recorded) {
    const MemorySetup setup{.device = recorded.cluster.budget,
                            .used_by_others = {0},  // the recorder's device has nothing else in it
                            .allocator = recorded.allocator};
    const Timeline timeline = recorder_timeline(schedule, tree, recorded, setup);
    return device_memory(schedule, timeline, setup, recorded.timing);
}

class Phases {
public:
    Phases(const Schedule& schedule, const MemoryProfile& profile, const TrainingJob& job)
        : schedule_(schedule),
          profile_(profile),
          stretches_(stretches_of(schedule, job)),
          program_(program_bytes(schedule)) {}

    SimulatedMemory read() {
        const std::size_t begin = stretches_.empty() ? 0 : stretches_.front().begin;
        out_.setup = measured({.phase = "setup", .begin = 0, .end = begin});
        if (profile_.out_of_memory) {
            out_.out_of_memory =
                SimulatedMemory::Failure{.requested_bytes = profile_.out_of_memory->requested_bytes,
                                         .allocated_bytes = profile_.out_of_memory->allocated_bytes};
        }
        for (const Stretch& stretch : stretches_) {
            if (failed_before(stretch.begin)) {
                break;
            }
            if (failed_before(stretch.end)) {
                out_.out_of_memory->step = static_cast<std::int64_t>(stretch.step);
                out_.out_of_memory->phase = stretch.phase;
                break;
            }
            out_.steps.resize(stretch.step + 1);
            out_.steps[stretch.step].push_back(measured(stretch));
        }
        find_peak();
        return std::move(out_);
    }

private:
    bool failed_before(std::size_t op) const {
        return profile_.out_of_memory && static_cast<std::size_t>(profile_.out_of_memory->op) < op;
    }

    void take(const MemoryChange& change) {
        allocated_ = change.allocated_bytes;
        reserved_ = std::max(change.reserved_bytes, std::int64_t{0});
    }

    PhaseMemory measured(const Stretch& stretch) {
        PhaseMemory phase{
            .phase = stretch.phase, .peak_allocated_bytes = allocated_, .peak_reserved_bytes = reserved_};
        while (next_ < profile_.changes.size() &&
               static_cast<std::size_t>(profile_.changes[next_].op) < stretch.end) {
            take(profile_.changes[next_++]);
            phase.peak_allocated_bytes = std::max(phase.peak_allocated_bytes, allocated_);
            phase.peak_reserved_bytes = std::max(phase.peak_reserved_bytes, reserved_);
        }
        phase.allocated_bytes = allocated_;
        phase.requested_bytes = program_[stretch.end];
        phase.peak_requested_bytes =
            *std::max_element(program_.begin() + static_cast<std::ptrdiff_t>(stretch.begin),
                              program_.begin() + static_cast<std::ptrdiff_t>(stretch.end) + 1);
        return phase;
    }

    // Of the last step that is whole.
    void find_peak() {
        const auto last = std::ranges::find(stretches_, "end", &Stretch::phase);
        if (last == stretches_.end()) {
            return;
        }
        const std::size_t step = stretches_.back().step;
        std::size_t begin = stretches_.back().end;
        for (const Stretch& stretch : stretches_) {
            begin = stretch.step == step ? std::min(begin, stretch.begin) : begin;
        }
        std::int64_t most = -1;
        std::size_t at_most = 0;
        for (std::size_t i = 0; i < profile_.changes.size(); ++i) {
            const MemoryChange& change = profile_.changes[i];
            if (static_cast<std::size_t>(change.op) >= begin && change.allocated_bytes > most) {
                most = change.allocated_bytes;
                at_most = i + 1;
            }
        }
        for (std::size_t i = 0; i < at_most; ++i) {
            const MemoryChange& change = profile_.changes[i];
            const std::int64_t bytes = schedule_.buffers[static_cast<std::size_t>(change.buffer)].bytes;
            out_.at_peak[static_cast<std::size_t>(change.category)] += change.delta_bytes > 0   ? bytes
                                                                       : change.delta_bytes < 0 ? -bytes
                                                                                                : 0;
        }
    }

    const Schedule& schedule_;
    const MemoryProfile& profile_;
    std::vector<Stretch> stretches_;
    std::vector<std::int64_t> program_;
    SimulatedMemory out_;
    std::size_t next_ = 0;
    std::int64_t allocated_ = 0;
    std::int64_t reserved_ = 0;
};

}  // namespace

SimulatedMemory simulated_memory(const ModelGraph& model, const ModuleTree& tree,
                                 const CudaMemoryCase& recorded) {
    const Schedule schedule =
        training_schedule(model, tree, recorded.plan, recorded.job, recorded.cluster,
                          {.iterations = recorded.steps, .input_bytes = recorded.input_bytes, .rank = 0});
    const MemoryProfile profile = played(schedule, tree, recorded);
    return Phases(schedule, profile, recorded.job).read();
}

}  // namespace fsdplan
