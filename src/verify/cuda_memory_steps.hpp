#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/cuda_memory_case.hpp"

namespace fsdplan {

/// What the allocator would have said about a phase of a step.
struct PhaseMemory {
    std::string phase;  ///< "forward", "backward[1]", …
    std::int64_t allocated_bytes = 0;
    std::int64_t peak_allocated_bytes = 0;
    std::int64_t peak_reserved_bytes = 0;
    // What the program holds, without rounding: at the end, and at most.
    std::int64_t requested_bytes = 0;
    std::int64_t peak_requested_bytes = 0;
};

/// What our schedule comes to, phase by phase as the recorder counted them.
struct SimulatedMemory {
    PhaseMemory setup;                            ///< before the first step
    std::vector<std::vector<PhaseMemory>> steps;  ///< the last one may be cut short
    struct Failure {
        std::int64_t step = -1;  ///< of none: before the first
        std::string phase = "setup";
        std::int64_t requested_bytes = 0;
        std::int64_t allocated_bytes = 0;
    };
    std::optional<Failure> out_of_memory;
    /// Bytes asked for by category, at the peak of the last step.
    std::array<std::int64_t, category_count> at_peak{};
};

/// Lowers, prices and plays the case on the recorded device.
SimulatedMemory simulated_memory(const ModelGraph& model, const ModuleTree& tree,
                                 const CudaMemoryCase& recorded);

}  // namespace fsdplan
