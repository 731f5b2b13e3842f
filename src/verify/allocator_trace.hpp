#pragma once

#include "base/json.hpp"
#include "fsdplan/allocator.hpp"
#include "verify/case_report.hpp"

namespace fsdplan {

/// Replays the steps of one trace (docs/formats.md) on an allocator that has just been reset. Stops at the
/// first that differs, since all that follows depends on it.
void replay_trace(const json::Value& trace, CachingAllocator& allocator, CaseReport& report);

}  // namespace fsdplan
