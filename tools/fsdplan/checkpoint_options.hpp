#pragma once

#include <optional>
#include <string>

#include "fsdplan/checkpoint_plan.hpp"
#include "fsdplan/compatibility.hpp"
#include "question_options.hpp"

namespace fsdplan::cli {

/// How checkpoints are saved.
struct SaveOptions {
    std::optional<std::string> type;
    std::string write_bandwidth;
    std::string store_bandwidth;
    std::int64_t timeout_minutes = 10;
    bool model_only = false;

    /// `--save-type` alone.
    void declare_type(Arguments& arguments);
    void declare(Arguments& arguments);
    /// Throws Error(input) at the option that is wrong.
    CheckpointWish wish() const;
    /// The type that was given, or that of a settings file of accelerate or Trainer.
    CheckpointWish wish(const AskedQuestion& asked, const TrainingJob& job) const;
    std::vector<Assumption> assumptions(const CheckpointWish& wish) const;
};

/// What `--load-into` says: a runtime and settings that differ, e.g. "fsdp2,world=48".
struct LoadInto {
    TrainingJob job;
    std::optional<std::string> route;  ///< a name of load_routes()
    std::string dtype;                 ///< empty: as the source
    bool with_optimizer = true;
    bool device_mesh = false;
};
/// Throws Error(input) at --load-into with the nearest key.
LoadInto parse_load_into(const std::string& text, const TrainingJob& from);

/// "257152x2048:131661824": the shape in the checkpoint and the model's. Throws Error(input) at --mismatch.
ShapeMismatch parse_mismatch(const std::string& text);

}  // namespace fsdplan::cli
