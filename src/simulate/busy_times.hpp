#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fsdplan/schedule.hpp"

namespace fsdplan {

/// When collectives run, and how long other work takes that shares the device with them.
class BusyTimes {
public:
    void add(std::int64_t begin, std::int64_t end);

    /// When work ends that takes `ns` alone and keeps `speed` of its own while a collective runs. `begin`
    /// never falls for one stream.
    std::int64_t end_of(Stream stream, std::int64_t begin, std::int64_t ns, double speed) {
        std::size_t& at = at_[static_cast<std::size_t>(stream)];
        while (at < spans_.size() && spans_[at].end <= begin) {
            ++at;
        }
        return at == spans_.size() || begin + ns <= spans_[at].begin ? begin + ns
                                                                     : slowed_end(at, begin, ns, speed);
    }

private:
    struct Span {
        std::int64_t begin = 0;
        std::int64_t end = 0;
    };

    std::int64_t slowed_end(std::size_t at, std::int64_t begin, std::int64_t ns, double speed) const;

    std::vector<Span> spans_;                     // disjoint, in order of time
    std::array<std::size_t, stream_count> at_{};  // the spans before are over where the stream stands
};

}  // namespace fsdplan
