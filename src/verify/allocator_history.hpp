#pragma once

#include <cstdint>
#include <string>

#include "base/pickle.hpp"
#include "fsdplan/allocator.hpp"
#include "verify/case_report.hpp"

namespace fsdplan {

/// A history cannot be replayed, and why.
struct Unfit {
    std::string reason;
};

/// Replays the history of allocations in a memory snapshot of PyTorch on an allocator that is new, and
/// compares every address. Returns the number of blocks that are allocated at the end. Throws Unfit.
std::int64_t replay_history(const pickle::Value& snapshot, CachingAllocator& allocator, CaseReport& report);

}  // namespace fsdplan
