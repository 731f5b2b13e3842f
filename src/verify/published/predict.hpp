#pragma once

#include <string>
#include <vector>

#include "fsdplan/simulate.hpp"
#include "verify/published/row.hpp"

namespace fsdplan {

/// A published run as what is simulated.
struct PreparedRun {
    std::string refused;  ///< why it could not be; then nothing below is set
    Schedule schedule;
    Cluster cluster;  ///< the row's
    SimulationOptions options;
    std::int64_t tokens = 0;  ///< of one rank and step
};
PreparedRun prepare(const PublishedRun& run);

/// What is predicted for a published run. Intervals are meant to hold in nine of ten rows.
struct Prediction {
    std::string refused;  ///< why it could not be simulated; then nothing below is set
    Estimate peak_active_bytes;
    Estimate peak_reserved_bytes;
    Estimate peak_allocated_bytes;
    std::int64_t peak_live_bytes = 0;  ///< what the program holds, before the allocator rounds anything
    Estimate step_ns;
    Estimate tokens_per_s;  ///< of one GPU
    bool fits = true;       ///< on the row's GPU, beside what CUDA and NCCL take
};

/// Simulates the run of a row that is not outside: on its GPU, or where that is too small on one without end.
Prediction predict(const PublishedRun& run);

}  // namespace fsdplan
