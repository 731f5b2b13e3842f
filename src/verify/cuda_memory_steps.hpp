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
    std::int64_t requested_bytes = 0;  ///< of what the program holds at the end: no rounding
};

/// What our schedule comes to, phase by phase as the recorder counted them.
struct SimulatedMemory {
    std::int64_t setup_requested_bytes = 0;
    std::vector<std::vector<PhaseMemory>> steps;  ///< the last one may be cut short
    struct Failure {
        std::size_t step = 0;
        std::string phase;
        std::int64_t requested_bytes = 0;
        std::int64_t allocated_bytes = 0;
    };
    std::optional<Failure> out_of_memory;
    /// Bytes by category at the peak of the last complete step.
    std::array<std::int64_t, category_count> at_peak{};
};

/// Lowers, prices and plays the case on the recorded device.
SimulatedMemory simulated_memory(const ModelGraph& model, const ModuleTree& tree,
                                 const CudaMemoryCase& recorded);

}  // namespace fsdplan
