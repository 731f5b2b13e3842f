#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fsdplan/cost.hpp"
#include "fsdplan/planner.hpp"

namespace fsdplan::cli {

class Arguments;

/// The GPUs that a command is about.
struct ClusterOptions {
    std::optional<std::string> cluster;
    std::optional<std::string> gpu;
    std::optional<std::int64_t> gpus;
    std::optional<std::int64_t> gpus_per_node;
    std::optional<std::string> memory;
    std::optional<std::string> calibration;

    void declare(Arguments& arguments);
    /// Throws Error(input) for what does not exist or cannot be.
    Cluster find() const;
    /// Where each value of `found` comes from.
    std::vector<Assumption> assumptions(const Cluster& found) const;
};

}  // namespace fsdplan::cli
