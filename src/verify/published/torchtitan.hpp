#pragma once

#include <array>
#include <span>
#include <string_view>

#include "verify/published/reading.hpp"

// What torchtitan runs, whoever published it.
namespace fsdplan::published {

/// The state of its code.
struct TorchtitanCode {
    std::string_view version;  ///< of its model: a month
    bool keeps_prediction;     ///< until the next forward; since June 2024 backward begins without
    std::span<const std::string_view>
        unfused;  ///< models whose train_configs have plain norms, not fused ones
    bool has_fused_norms = true;
};
constexpr TorchtitanCode torchtitan_of_march{"2024-03", true, {}, false};
constexpr std::array<std::string_view, 2> large_models{"llama2-70b", "llama3.1-70b"};
constexpr TorchtitanCode torchtitan_of_april{"2024-04", true, large_models};
constexpr TorchtitanCode torchtitan_of_december{"2024-12", false, {}, false};

/// torchtitan's own Llama, with the sizes that `row` names in the file's own list.
void take_torchtitan_llama(const json::Value& file, const json::Value& row, const TorchtitanCode& code,
                           PublishedRun& run);

/// Its training of the model that `model` names, sharded over `setting`'s GPUs: model, job and units but for
/// checkpointing. `setting` has gpus, lbs and seq.
void take_torchtitan(const json::Value& file, const json::Value& setting, const TorchtitanCode& code,
                     std::string_view runtime, PublishedRun& run);

/// A row of torchtitan's columns (gpus, lbs, seq, ac, compile, figures), or why it is outside: other
/// parallelism than FSDP's, a setting that is not known or not stated.
struct TorchtitanTable {
    std::string_view name;
    std::string_view gpu;
    TorchtitanCode code;
};
PublishedRow torchtitan_row(const json::Value& file, const json::Value& row, const TorchtitanTable& table);

}  // namespace fsdplan::published
