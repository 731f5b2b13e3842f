#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdplan/planner.hpp"
#include "options.hpp"

namespace fsdplan::cli {

class Arguments;

/// TrainingJob::reshard_after_forward from "true", "false" or a number of ranks, of which `shard` share a
/// parameter; throws Error(input) at --reshard-after-forward.
std::int64_t parse_reshard(const std::string& text, std::int64_t shard);

/// What a training of this model is like as long as nobody says otherwise.
TrainingJob usual_job(const ModelGraph& model);

/// A job with the values of the options that were given as lists.
struct ListedJob {
    TrainingJob job;
    std::vector<std::pair<std::string, std::string>> settings;
};

/// What the user decides besides model and GPUs. The options that are vectors take lists: `--batch 1,2,4`.
struct JobOptions {
    std::optional<std::string> runtime;
    std::optional<std::string> torch;
    std::vector<std::string> strategy;
    std::optional<std::string> reshard_after_forward;
    std::optional<std::string> mesh;
    std::vector<std::int64_t> batch;
    std::optional<std::int64_t> target_sequence;
    std::vector<std::int64_t> sequence;
    std::vector<std::int64_t> accumulate;
    bool no_sync = false;
    std::optional<std::string> param_dtype;
    std::optional<std::string> reduce_dtype;
    std::optional<std::string> buffer_dtype;
    std::vector<std::string> optimizer;
    std::vector<std::string> activation_checkpointing;
    std::vector<std::string> loss;
    std::vector<std::string> attention;
    bool use_orig_params = false;
    std::optional<std::string> backward_prefetch;
    bool forward_prefetch = false;
    bool no_limit_all_gathers = false;
    bool offload = false;

    void declare(Arguments& arguments);
    /// Every combination of the listed options. `base` counts where an option is absent, its mesh where it
    /// has more than one rank. Throws Error(input) at the option that is wrong.
    std::vector<ListedJob> jobs(const Cluster& cluster, TrainingJob base) const;
    /// Where the values of `job` come from; `base` says where those do that no option gave.
    std::vector<Assumption> assumptions(const ModelGraph& model, const TrainingJob& job,
                                        const std::string& base) const;
};

/// Reads a model that is to be trained, and notes its dtype.
///
/// A configuration or a checkpoint says how a model was saved, not how it is trained: without --dtype its
/// parameters are stored in float32, as mixed precision wants them. An exported tree keeps its dtypes.
ModelGraph load_for_training(ModelOptions options, std::vector<Assumption>& assumptions);

}  // namespace fsdplan::cli
