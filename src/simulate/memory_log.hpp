#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "fsdplan/simulate.hpp"

namespace fsdplan {

/// Writes a MemoryProfile down while the memory operations of a schedule go by: `op` with its `buffer`, both
/// by their rows. `reserved_bytes` is what the caching allocator has reserved by then.
class MemoryLog {
public:
    explicit MemoryLog(const Schedule& schedule);

    /// The buffer takes `bytes`.
    void allocate(std::size_t op, std::size_t buffer, std::int64_t bytes, std::int64_t reserved_bytes);
    void free(std::size_t op, std::size_t buffer, std::int64_t reserved_bytes);
    void relabel(std::size_t op, std::size_t buffer, std::int64_t reserved_bytes);
    /// An allocate has failed, after which nothing is written down any more.
    void run_out(const OutOfMemory& out_of_memory);
    /// The profile with what was alive at the peak. The log is used up.
    MemoryProfile take();

    MemoryProfile& profile() { return profile_; }
    const MemoryProfile& profile() const { return profile_; }

private:
    struct Held {
        std::int64_t bytes = 0;  // that the buffer takes
        Category category{};     // as last labelled

        Held operator-() const { return {.bytes = -bytes, .category = category}; }
    };

    static constexpr std::size_t no_iteration = std::numeric_limits<std::size_t>::max();

    /// In front of everything that is written down, so that iterations begin where they do.
    void begin(std::size_t op) {
        if (op >= next_iteration_) {
            begin_iterations(op);
        }
    }
    void begin_iterations(std::size_t op);
    void change(std::size_t op, std::size_t buffer, Held held, std::int64_t reserved_bytes);

    const Schedule& schedule_;
    MemoryProfile profile_;
    std::vector<Held> held_;  // of each buffer
    std::int64_t allocated_bytes_ = 0;
    std::int64_t host_bytes_ = 0;
    std::size_t next_iteration_ = no_iteration;  // where it begins
};

// Most operations of a schedule pass here.

/// `held`: by how much the buffer's memory grows, and as what.
inline void MemoryLog::change(std::size_t op, std::size_t buffer, Held held, std::int64_t reserved_bytes) {
    begin(op);
    if (schedule_.buffers[buffer].on_host) {
        host_bytes_ += held.bytes;
        profile_.host_peak_bytes = std::max(profile_.host_peak_bytes, host_bytes_);
        return;
    }
    allocated_bytes_ += held.bytes;
    profile_.changes.push_back({.op = static_cast<std::int32_t>(op),
                                .buffer = static_cast<std::int32_t>(buffer),
                                .category = held.category,
                                .delta_bytes = held.bytes,
                                .allocated_bytes = allocated_bytes_,
                                .reserved_bytes = reserved_bytes});
}

inline void MemoryLog::allocate(std::size_t op, std::size_t buffer, std::int64_t bytes,
                                std::int64_t reserved_bytes) {
    const Held held{.bytes = bytes, .category = schedule_.buffers[buffer].category};
    held_[buffer] = held;
    change(op, buffer, held, reserved_bytes);
    if (allocated_bytes_ > profile_.peak.allocated_bytes) {
        profile_.peak.allocated_bytes = allocated_bytes_;
        profile_.peak.op = static_cast<std::int32_t>(op);
    }
    if (!profile_.iteration_peak_bytes.empty()) {
        std::int64_t& peak = profile_.iteration_peak_bytes.back();
        peak = std::max(peak, allocated_bytes_);
    }
}

inline void MemoryLog::free(std::size_t op, std::size_t buffer, std::int64_t reserved_bytes) {
    change(op, buffer, -held_[buffer], reserved_bytes);
}

}  // namespace fsdplan
