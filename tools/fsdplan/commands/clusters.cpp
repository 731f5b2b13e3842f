#include <fmt/core.h>

#include "base/quantity.hpp"
#include "command.hpp"
#include "fsdplan/cost.hpp"

namespace fsdplan::cli {
namespace {

int print_clusters() {
    fmt::print("{:<16}{:>11}{:>9}{:>8}{:>7}{:>10}  {}\n", "GPU", "CUDA sees", "memory", "bf16", "SMs",
               "links", "usually in");
    for (const Gpu& gpu : library_gpus()) {
        const std::string links =
            gpu.link_bytes_per_s > 0.0 ? fmt::format("{:.0f} GB/s", gpu.link_bytes_per_s / 1e9) : "PCIe";
        fmt::print("{:<16}{:>11}{:>9}{:>8}{:>7}{:>10}  {}\n", gpu.name, show_bytes(gpu.memory.count),
                   fmt::format("{:.1f} TB/s", gpu.memory_bytes_per_s / 1e12),
                   fmt::format("{:.0f} TF", gpu.flops_half / 1e12), gpu.sm_count, links, gpu.usual_cluster);
    }
    fmt::print("\n{:<18}{:<16}{:>6}{:>13}  {}\n", "cluster", "GPU", "a node", "network",
               "measured collectives");
    for (const Cluster& cluster : library_clusters()) {
        std::string curves;
        for (const CollectiveCurve& curve : cluster.curves) {
            curves += fmt::format("{}{} on {}", curves.empty() ? "" : ", ", name(curve.kind), curve.ranks);
        }
        fmt::print("{:<18}{:<16}{:>6}{:>13}  {}\n", cluster.name, cluster.gpu.name, cluster.gpus_per_node,
                   fmt::format("{:.4g} GB/s", cluster.network_bytes_per_s / 1e9),
                   curves.empty() ? "none" : curves);
    }
    fmt::print("\nlinks and network: bytes a second and direction, of a GPU and of a node\n");
    return answered;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo clusters;
constinit const cli::CommandInfo clusters{
    .name = "clusters",
    .help = "the GPUs and clusters of the library, with the names that other commands take",
    .example = "fsdplan clusters",
    .setup = [](cli::Arguments&) { return std::function<int()>(cli::print_clusters); },
};

}  // namespace fsdplan::builtin::command
