#include <algorithm>
#include <map>

#include "fsdplan/simulate.hpp"
#include "simulate/memory_log.hpp"

namespace fsdplan {

void MemoryLog::apply(const Schedule& schedule, std::size_t at, std::int64_t device_bytes,
                      std::int64_t reserved_bytes) {
    const Op& op = schedule.ops[at];
    const Buffer& buffer = schedule.buffers[static_cast<std::size_t>(op.target)];
    const bool on_host = buffer.on_host;
    Held& held = held_[static_cast<std::size_t>(op.target)];
    const auto change = [&](Category category, std::int64_t bytes) {
        if (on_host) {
            host_bytes_ += bytes;
            profile_.host_peak_bytes = std::max(profile_.host_peak_bytes, host_bytes_);
            return;
        }
        allocated_bytes_ += bytes;
        profile_.changes.push_back({.op = static_cast<std::int32_t>(at),
                                    .buffer = op.target,
                                    .category = category,
                                    .delta_bytes = bytes,
                                    .allocated_bytes = allocated_bytes_,
                                    .reserved_bytes = reserved_bytes});
    };
    switch (op.kind) {
        case OpKind::allocate:
            held = {.bytes = device_bytes, .category = buffer.category};
            change(held.category, device_bytes);
            break;
        case OpKind::free:
            change(held.category, -held.bytes);
            break;
        case OpKind::relabel:
            change(held.category, -held.bytes);
            held.category = static_cast<Category>(op.detail);
            change(held.category, held.bytes);
            break;
        default:
            break;
    }
    if (allocated_bytes_ > profile_.peak.allocated_bytes) {
        profile_.peak.allocated_bytes = allocated_bytes_;
        profile_.peak.op = static_cast<std::int32_t>(at);
    }
    if (!profile_.iteration_peak_bytes.empty()) {
        std::int64_t& peak = profile_.iteration_peak_bytes.back();
        peak = std::max(peak, allocated_bytes_);
    }
}

MemoryProfile MemoryLog::take(const Schedule& schedule) {
    if (!schedule.ops.empty() && !profile_.out_of_memory) {
        begin(schedule, schedule.ops.size() - 1);  // iterations that left memory alone
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
        const Op& op = schedule.ops[i];
        log.begin(schedule, i);
        if (op.kind == OpKind::allocate || op.kind == OpKind::free || op.kind == OpKind::relabel) {
            log.apply(schedule, i, schedule.buffers[static_cast<std::size_t>(op.target)].bytes, 0);
        }
    }
    return log.take(schedule);
}

}  // namespace fsdplan
