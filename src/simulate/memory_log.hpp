#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fsdplan/simulate.hpp"

namespace fsdplan {

/// Writes a MemoryProfile down while the memory operations of a schedule go by.
class MemoryLog {
public:
    explicit MemoryLog(const Schedule& schedule) : held_(schedule.buffers.size()) {
        // Most buffers come and go about once; more room comes as it is needed.
        profile_.changes.reserve(2 * schedule.buffers.size());
    }

    /// In front of every operation that apply() gets, so that iterations begin where they do.
    void begin(const Schedule& schedule, std::size_t at) {
        while (iteration_ < schedule.iteration_begin.size() &&
               at >= static_cast<std::size_t>(schedule.iteration_begin[iteration_])) {
            ++iteration_;
            profile_.iteration_peak_bytes.push_back(allocated_bytes_);
        }
    }
    /// An allocate, free or relabel. `device_bytes`: what the buffer takes; of an allocate only.
    void apply(const Schedule& schedule, std::size_t at, std::int64_t device_bytes,
               std::int64_t reserved_bytes);
    /// The profile with what was alive at the peak. The log is used up.
    MemoryProfile take(const Schedule& schedule);

    MemoryProfile& profile() { return profile_; }
    const MemoryProfile& profile() const { return profile_; }

private:
    MemoryProfile profile_;
    struct Held {
        std::int64_t bytes = 0;  // that the buffer takes
        Category category{};     // as last labelled
    };
    std::vector<Held> held_;  // of each buffer
    std::int64_t allocated_bytes_ = 0;
    std::int64_t host_bytes_ = 0;
    std::size_t iteration_ = 0;
};

}  // namespace fsdplan
