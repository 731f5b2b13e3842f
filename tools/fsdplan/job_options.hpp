#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fsdplan/planner.hpp"

namespace fsdplan::cli {

class Arguments;

/// A job with the values of the options that were given as lists.
struct ListedJob {
    TrainingJob job;
    std::vector<std::pair<std::string, std::string>> settings;
};

/// What the user decides besides model and GPUs. The options that are vectors take lists: `--batch 1,2,4`.
struct JobOptions {
    std::optional<std::string> runtime;
    std::vector<std::string> strategy;
    std::optional<std::string> reshard_after_forward;
    std::optional<std::string> mesh;
    std::vector<std::int64_t> batch;
    std::vector<std::int64_t> sequence;
    std::vector<std::int64_t> accumulate;
    bool no_sync = false;
    std::optional<std::string> param_dtype;
    std::optional<std::string> reduce_dtype;
    std::optional<std::string> buffer_dtype;
    std::vector<std::string> optimizer;
    std::vector<std::string> activation_checkpointing;
    std::vector<std::string> loss;
    bool use_orig_params = false;
    std::optional<std::string> backward_prefetch;
    bool forward_prefetch = false;
    bool no_limit_all_gathers = false;
    bool offload = false;

    void declare(Arguments& arguments);
    /// Every combination of the listed options. `default_runtime` counts where --runtime is absent.
    /// Throws Error(input) at the option that is wrong.
    std::vector<ListedJob> jobs(const ModelGraph& model, const Cluster& cluster,
                                std::string_view default_runtime) const;
    /// Where the values of `job` come from.
    std::vector<Assumption> assumptions(const ModelGraph& model, const TrainingJob& job) const;
};

}  // namespace fsdplan::cli
