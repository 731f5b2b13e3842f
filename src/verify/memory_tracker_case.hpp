#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/operators.hpp"
#include "verify/memory_tracker_live.hpp"
#include "verify/runtime_case.hpp"

namespace fsdplan {

/// A run under FSDPMemTracker (`case` of `fsdplan.memtracker-golden`, docs/formats.md) in our own terms.
struct MemoryTrackerCase {
    ModuleTree tree;
    RuntimeCase run;
    OperatorGraph operators;
    std::vector<std::int64_t> input_bytes;  ///< of each tensor of the batch
    int iterations = 0;
    bool is_fake = false;  ///< no values: the model ran in a FakeTensorMode

    TrackerHooks hooks() const;
};

/// What the export of the recorded model is called, as it computes under mixed precision: "llama@bf16", with
/// the sizes of the batch where they are given "llama3-8b@bf16_batch1_seq2048".
std::string export_name(const json::Value& recorded_case);

/// `exported`: the file of that name.
MemoryTrackerCase memory_tracker_case(const json::Value& recording, const std::string& exported);

}  // namespace fsdplan
