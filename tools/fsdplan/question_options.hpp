#pragma once

#include <vector>

#include "cluster_options.hpp"
#include "frontend_options.hpp"
#include "job_options.hpp"
#include "options.hpp"
#include "policy_options.hpp"

namespace fsdplan::cli {

/// A question as it was asked, read and checked. The parts refer to nothing of each other.
struct AskedQuestion {
    ModelGraph model;
    ModuleTree tree;
    Cluster cluster;
    PolicySpec policy;
    bool open_threshold = false;  ///< min_num_params was left open
    WrapOptions wrap;
    std::vector<ListedJob> jobs;
    std::vector<Assumption> assumptions;  ///< of the model and of a settings file
    std::string base = "default";         ///< where values come from that no option gave
};

/// The question of a command that is about one job; `asked` must outlive it. Throws Error(input) at the
/// option that has several values.
SweepQuestion about_one_job(const AskedQuestion& asked, std::string_view command);

/// A model to be trained on GPUs: everything that sweep, simulate and their like are asked with.
struct QuestionOptions {
    ModelOptions model;
    ClusterOptions cluster;
    JobOptions job;
    PolicyOptions policy;
    FrontendOptions frontend;

    void declare(Arguments& arguments);
    /// Throws Error(input) for what cannot be used. Prints a settings file's notes to stderr.
    AskedQuestion ask() const;
    /// Where the values of `job` and the cluster come from, behind those of `asked`.
    std::vector<Assumption> assumptions(const AskedQuestion& asked, const TrainingJob& job) const;
};

}  // namespace fsdplan::cli
