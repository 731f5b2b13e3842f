#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fsdplan/planner.hpp"

// Why a plan does not fit, or waits, and what one change would do about it.
namespace fsdplan {

/// One thing done otherwise, simulated again.
struct ExplainedChange {
    std::string change;  ///< as the command line says it
    std::int64_t process_bytes = 0;
    std::int64_t freed_bytes = 0;  ///< of the process at its peak; negative: more is needed
    Estimate step_ns;
    double speed = 1.0;  ///< tokens a second of all GPUs, relative to now
    std::optional<bool> fits;
    std::string refused;      ///< what PyTorch says against it; empty: nothing
    std::string side_effect;  ///< beside memory and time; empty: none
};

struct Explanation {
    StepResult step;
    /// For a plan that does not fit: those that make it fit, the fastest first, then the others by what they
    /// free. For one that fits: by speed.
    std::vector<ExplainedChange> changes;
};

/// The question's policy under its only job. Throws Error(input) for a job that cannot be.
Explanation explain(const SweepQuestion& question, const StepOptions& options = {});

}  // namespace fsdplan
