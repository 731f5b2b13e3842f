#include <map>

#include "fsdplan/simulate.hpp"
#include "simulate/memory_log.hpp"

namespace fsdplan {

MemoryLog::MemoryLog(const Schedule& schedule) : schedule_(schedule), held_(schedule.buffers.size()) {
    // Most buffers come and go about once; more room comes as it is needed.
    profile_.changes.reserve(2 * schedule.buffers.size());
    if (!schedule.iteration_begin.empty()) {
        next_iteration_ = static_cast<std::size_t>(schedule.iteration_begin.front());
    }
}

void MemoryLog::begin_iterations(std::size_t op) {
    while (op >= next_iteration_) {
        profile_.iteration_peak_bytes.push_back(allocated_bytes_);
        const std::size_t begun = profile_.iteration_peak_bytes.size();
        next_iteration_ = begun < schedule_.iteration_begin.size()
                              ? static_cast<std::size_t>(schedule_.iteration_begin[begun])
                              : no_iteration;
    }
}

void MemoryLog::relabel(std::size_t op, std::size_t buffer, std::int64_t reserved_bytes) {
    change(op, buffer, -held_[buffer], reserved_bytes);
    held_[buffer].category = static_cast<Category>(schedule_.ops[op].detail);
    change(op, buffer, held_[buffer], reserved_bytes);
}

void MemoryLog::run_out(const OutOfMemory& out_of_memory) {
    begin(static_cast<std::size_t>(out_of_memory.op));
    profile_.out_of_memory = out_of_memory;
}

MemoryProfile MemoryLog::take() {
    if (!schedule_.ops.empty() && !profile_.out_of_memory) {
        begin(schedule_.ops.size() - 1);  // iterations that left memory alone
    }
    // The peak is known now: play the changes up to it once more for what it consists of.
    for (const MemoryChange& change : profile_.changes) {
        if (change.op > profile_.peak.op) {
            break;
        }
        profile_.peak.by_category[static_cast<std::size_t>(change.category)] += change.delta_bytes;
    }
    return std::move(profile_);
}

std::array<std::int64_t, category_count> bytes_by_category(const MemoryProfile& profile,
                                                           std::size_t changes) {
    std::array<std::int64_t, category_count> bytes{};
    for (std::size_t i = 0; i < changes; ++i) {
        bytes[static_cast<std::size_t>(profile.changes[i].category)] += profile.changes[i].delta_bytes;
    }
    return bytes;
}

std::vector<std::int32_t> live_at_peak(const MemoryProfile& profile) {
    std::map<std::int32_t, std::int64_t> bytes;
    for (const MemoryChange& change : profile.changes) {
        if (change.op > profile.peak.op) {
            break;
        }
        bytes[change.buffer] += change.delta_bytes;
    }
    std::vector<std::int32_t> live;
    for (const auto& [buffer, held] : bytes) {
        if (held > 0) {
            live.push_back(buffer);
        }
    }
    return live;
}

MemoryProfile program_memory(const Schedule& schedule) {
    MemoryLog log(schedule);
    for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
        const auto buffer = static_cast<std::size_t>(schedule.ops[i].target);
        switch (schedule.ops[i].kind) {
            case OpKind::allocate:
                log.allocate(i, buffer, schedule.buffers[buffer].bytes, 0);
                break;
            case OpKind::free:
                log.free(i, buffer, 0);
                break;
            case OpKind::relabel:
                log.relabel(i, buffer, 0);
                break;
            default:
                break;
        }
    }
    return log.take();
}

}  // namespace fsdplan
