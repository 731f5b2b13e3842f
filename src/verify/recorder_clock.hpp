#pragma once

#include "verify/cuda_memory_case.hpp"

namespace fsdplan {

/// When the recorder's stand-in for the device came to each operation. Only events that the host asks for
/// depend on it: FSDP1's record_stream. `schedule` is that of `recorded`.
Timeline recorder_timeline(const Schedule& schedule, const ModuleTree& tree, const CudaMemoryCase& recorded,
                           const MemorySetup& setup);

}  // namespace fsdplan
