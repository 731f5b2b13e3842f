#pragma once

#include <cstdint>
#include <optional>

#include "base/json.hpp"
#include "fsdplan/frontend.hpp"

namespace fsdplan::frontend {

/// What the transformers Trainer puts where a DeepSpeed configuration says "auto". The defaults are those of
/// TrainingArguments.
struct TrainerValues {
    std::int64_t batch = 8;
    std::int64_t accumulate = 1;
    double max_grad_norm = 1.0;
    bool bf16 = false;
    bool fp16 = false;
};

/// What deepspeed.initialize() makes of its configuration. Throws Error(input) for what DeepSpeed refuses and
/// for what no plan can tell.
FrontendPlan deepspeed_plan(const json::Value& configuration, const FrontendQuestion& about,
                            const TrainerValues& trainer);

}  // namespace fsdplan::frontend
