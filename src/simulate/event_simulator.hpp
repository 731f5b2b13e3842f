#pragma once

#include <cstddef>
#include <cstdint>

#include "fsdplan/simulate.hpp"

namespace fsdplan {

/// What the event simulator tells memory, and what memory does to the clock.
class MemoryUnderTime {
public:
    MemoryUnderTime() = default;
    MemoryUnderTime(const MemoryUnderTime&) = delete;
    MemoryUnderTime& operator=(const MemoryUnderTime&) = delete;
    virtual ~MemoryUnderTime() = default;

    struct Effect {
        bool device_must_idle = false;  ///< the host waits for all that was issued
        std::int64_t host_ns = 0;       ///< and spends this on top
    };
    /// The host carries out operation `op`. `issued` and `done` count each stream's operations.
    virtual Effect on_host(std::size_t op, const std::array<std::int64_t, stream_count>& issued,
                           const std::array<std::int64_t, stream_count>& done) = 0;
};

/// play_events() with memory in the loop; `memory` may be null.
void play_events(const Schedule& schedule, const OpTimes& times, const Contention& contention,
                 MemoryUnderTime* memory, Timeline& out);

}  // namespace fsdplan
