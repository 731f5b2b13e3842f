#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/schedule.hpp"

// Events of a recorded iteration and those of a schedule, in one form.
namespace fsdplan {

struct RuntimeEvent {
    std::string text;  ///< kind, unit, phase and all numbers
    std::int64_t live_bytes = 0;
    /// The user's own computation, whose allocations nobody can predict, ran since the event before.
    bool after_computation = false;
};

struct RuntimeIteration {
    std::vector<RuntimeEvent> events;
    std::int64_t start_bytes = 0;
    std::int64_t end_bytes = 0;
    std::int64_t peak_bytes = 0;
    std::vector<std::int64_t> end_by_category;  ///< by Category
};

/// What a schedule's operations would have been recorded as; one entry an iteration.
std::vector<RuntimeIteration> events_of(const Schedule& schedule, const ModuleTree& tree);

/// A recorded event without its live bytes.
std::string text_of(const json::Value& event);

}  // namespace fsdplan
