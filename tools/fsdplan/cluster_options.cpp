#include "cluster_options.hpp"

#include <fmt/core.h>

#include "arguments.hpp"
#include "base/quantity.hpp"

namespace fsdplan::cli {

void ClusterOptions::declare(Arguments& arguments) {
    constexpr std::int64_t most = 1 << 24U;
    arguments.group("Cluster");
    arguments.option("--cluster", cluster,
                     "a name of `fsdplan clusters`, or a file in the format of models/clusters", "NAME|FILE");
    arguments.option("--gpu", gpu,
                     "a GPU of `fsdplan clusters`, in its usual nodes; h100-sxm when nothing is said",
                     "NAME");
    arguments.option("--gpus", gpus, "GPUs in all; one node when nothing is said", 1, most);
    arguments.option("--gpus-per-node", gpus_per_node, "GPUs of a node", 1, most);
    arguments.option("--memory", memory,
                     "what a process may use of a GPU, such as 76GiB; all that CUDA sees when absent",
                     "BYTES");
    arguments.option("--calibration", calibration,
                     "collectives as `fsdplan calibrate` measured them, and its devices where none are named",
                     "FILE");
}

Cluster ClusterOptions::find() const {
    return find_cluster({.cluster = cluster,
                         .gpu = gpu,
                         .gpus = gpus,
                         .gpus_per_node = gpus_per_node,
                         .memory = memory ? std::optional(parse_bytes(*memory, "--memory")) : std::nullopt,
                         .calibration = calibration});
}

std::vector<Assumption> ClusterOptions::assumptions(const Cluster& found) const {
    std::vector<Assumption> out;
    const std::string unnamed = found.calibrated ? "--calibration" : "default";
    out.push_back({"GPU", found.gpu.title,
                   gpu       ? "--gpu"
                   : cluster ? "--cluster"
                             : unnamed,
                   found.gpu.source});
    out.push_back(
        {"GPUs", fmt::format("{}, {} a node", found.gpus, found.gpus_per_node),
         gpus      ? "--gpus"
         : cluster ? "--cluster"
                   : unnamed,
         fmt::format("network {:.4g} GB/s a node, as of {}", found.network_bytes_per_s / 1e9, found.title)});
    if (calibration) {
        out.push_back({"collectives", "measured ones first", "--calibration", ""});
    }
    std::string reports;
    for (const double report : found.gpu.memory_reports) {
        reports += fmt::format("{}{}", reports.empty() ? "" : ", ", report);
    }
    out.push_back({"memory that CUDA sees", show_bytes(found.gpu.memory.count), found.gpu.name,
                   found.gpu.memory_reports.size() > 1 ? "the smallest of " + reports + " GiB reported"
                                                       : reports + " GiB reported"});
    if (memory) {
        out.push_back(
            {"budget", show_bytes(found.budget.count), "--memory", "instead of all that CUDA sees"});
    }
    return out;
}

}  // namespace fsdplan::cli
