#pragma once

#include <string_view>

#include "verify/published/reading.hpp"

// What torchtitan runs, whoever published it.
namespace fsdplan::published {

/// torchtitan's own Llama, in the version of its code of that month ("2024-03", "2024-12").
void take_torchtitan_llama(const json::Value& file, const json::Value& row, std::string_view version,
                           PublishedRun& run);

/// A row of torchtitan's columns (gpus, lbs, seq, ac, compile, figures), or why it is outside: other
/// parallelism than FSDP's, a setting that is not known or not stated.
struct TorchtitanTable {
    std::string_view name;
    std::string_view gpu;
    std::string_view version;
};
PublishedRow torchtitan_row(const json::Value& file, const json::Value& row, const TorchtitanTable& table);

/// The job of torchtitan's loop: bf16 over float32 shards, AdamW, its loss.
TrainingJob torchtitan_job(std::string_view runtime, std::int64_t gpus);

}  // namespace fsdplan::published
