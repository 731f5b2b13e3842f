#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>

#include "base/embedded.hpp"
#include "base/file.hpp"
#include "base/json.hpp"
#include "base/quantity.hpp"
#include "cost/constants.hpp"
#include "cost/curves.hpp"
#include "cost/file_values.hpp"
#include "fsdplan/cost.hpp"

namespace fsdplan {
namespace {

constexpr std::string_view gpu_folder = "gpus/";
constexpr std::string_view node_folder = "nodes/";
constexpr std::string_view default_gpu = "h100-sxm";

/// "H100 SXM", "h100_sxm" and "h100-sxm" are one name.
std::string folded(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        c = c == '_' || c == ' ' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return out;
}

struct Named {
    std::vector<std::string> names;  // the first is its own
    std::string_view content;
    std::string shown;
};

std::vector<Named> library(std::string_view folder) {
    std::vector<Named> entries;
    for (const embedded::EmbeddedFile& file : embedded::clusters()) {
        if (!file.path.starts_with(folder)) {
            continue;
        }
        Named entry{
            .names = {}, .content = file.content, .shown = "models/clusters/" + std::string(file.path)};
        const json::Document document(file.content, entry.shown);
        entry.names.emplace_back(document.root().at("name").string());
        for (const std::string& alias : document.root().at("aliases").strings()) {
            entry.names.push_back(alias);
        }
        entries.push_back(std::move(entry));
    }
    return entries;
}

Named find_named(std::string_view folder, std::string_view name, std::string_view where,
                 std::string_view what) {
    std::vector<std::string> known;
    for (Named& entry : library(folder)) {
        for (const std::string& word : entry.names) {
            if (folded(word) == folded(name)) {
                return std::move(entry);
            }
            known.push_back(word);
        }
    }
    throw Error(ErrorKind::input, std::string(where),
                "no " + std::string(what) + " of the library has the name \"" + std::string(name) + "\"" +
                    did_you_mean(name, known) + " (`fsdplan clusters` lists them)");
}

Gpu read_gpu(const json::Value& object) {
    expect_format(object, "fsdplan.gpu");
    object.allow_only({"format", "version", "name", "title", "aliases", "architecture",
                       "memory_seen_by_cuda_GiB", "sm_count", "memory_GBps", "kernel_start_bytes",
                       "dense_tflops", "constants", "link_GBps", "all_to_all_links", "pcie_GBps",
                       "cublas_workspace_bytes", "usual_cluster", "source"});
    Gpu gpu;
    gpu.name = object.at("name").string();
    gpu.title = text_or(object, "title", gpu.name);
    gpu.architecture = text_or(object, "architecture", "");
    const json::Value memory = object.at("memory_seen_by_cuda_GiB");
    for (const json::Value report : memory.elements()) {
        gpu.memory_reports.push_back(positive(report));
    }
    if (gpu.memory_reports.empty()) {
        memory.fail("at least one number");
    }
    gpu.memory = {static_cast<std::int64_t>(std::ranges::min(gpu.memory_reports) * 0x1p30)};
    gpu.sm_count = object.at("sm_count").integer(1, 100'000);
    gpu.memory_bytes_per_s = positive(object.at("memory_GBps")) * giga;
    if (const auto start = object.find("kernel_start_bytes")) {
        gpu.kernel_start_bytes = not_negative(*start);
    }
    const json::Value flops = object.at("dense_tflops");
    flops.allow_only({"half", "fp32"});
    gpu.flops_half = positive(flops.at("half")) * 1e12;
    gpu.flops_single = positive(flops.at("fp32")) * 1e12;
    gpu.constants = read_constants(object.find("constants"));
    gpu.link_bytes_per_s = not_negative(object.at("link_GBps")) * giga;
    gpu.all_to_all_links = object.at("all_to_all_links").boolean();
    gpu.pcie_bytes_per_s = positive(object.at("pcie_GBps")) * giga;
    gpu.cublas_workspace_bytes = object.at("cublas_workspace_bytes").integer(0, std::int64_t{1} << 32U);
    gpu.usual_cluster = text_or(object, "usual_cluster", "");
    gpu.source = text_or(object, "source", "");
    return gpu;
}

Gpu library_gpu(std::string_view name, std::string_view where) {
    const Named entry = find_named(gpu_folder, name, where, "GPU");
    const json::Document document(entry.content, entry.shown);
    return read_gpu(document.root());
}

/// `gpu_name` wins over the file's own GPU.
Cluster read_cluster(const json::Value& object, const std::optional<std::string>& gpu_name) {
    expect_format(object, "fsdplan.cluster");
    object.allow_only({"format", "version", "name", "title", "aliases", "gpu", "gpus", "gpus_per_node",
                       "network_GBps", "curves", "source"});
    Cluster cluster;
    cluster.name = object.at("name").string();
    cluster.title = text_or(object, "title", cluster.name);
    cluster.gpus_per_node = object.at("gpus_per_node").integer(1, most_gpus);
    const auto gpus = object.find("gpus");
    cluster.gpus = gpus ? gpus->integer(1, most_gpus) : cluster.gpus_per_node;
    cluster.network_bytes_per_s = positive(object.at("network_GBps")) * giga;
    cluster.source = text_or(object, "source", "");
    const auto gpu = object.find("gpu");
    if (gpu_name) {
        cluster.gpu = library_gpu(*gpu_name, "--gpu");
    } else if (!gpu) {
        throw Error(ErrorKind::input, object.where(), "names no GPU; add --gpu, such as --gpu h100-sxm");
    } else {
        cluster.gpu = gpu->is_object() ? read_gpu(*gpu) : library_gpu(gpu->string(), gpu->where());
    }
    if (const auto curves = object.find("curves")) {
        // Measurements belong to the GPU that they were made with.
        const bool own_gpu = !gpu_name || (gpu && gpu->is_string() && gpu->string() == cluster.gpu.name);
        std::vector<CollectiveCurve> read = read_curves(*curves);
        if (own_gpu) {
            cluster.curves = std::move(read);
        }
    }
    return cluster;
}

Cluster cluster_named(const std::string& name, const std::optional<std::string>& gpu) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(name, ignored)) {
        const json::Document document(read_text(name), name);
        return read_cluster(document.root(), gpu);
    }
    if (name.ends_with(".json")) {
        throw Error(ErrorKind::input, "--cluster", "no such file: " + name);
    }
    const Named entry = find_named(node_folder, name, "--cluster", "cluster");
    const json::Document document(entry.content, entry.shown);
    return read_cluster(document.root(), gpu);
}

/// A file that `fsdplan calibrate` wrote.
struct CalibrationFile {
    std::optional<Cluster> devices;  // those that were measured, where the file describes them
    std::vector<CollectiveCurve> curves;
};

CalibrationFile read_calibration(const std::string& file) {
    const json::Document document(read_text(file), file);
    const json::Value root = document.root();
    expect_format(root, "fsdplan.calibration");
    root.allow_only({"format", "version", "made_by", "devices", "curves"});
    CalibrationFile out;
    if (const auto devices = root.find("devices")) {
        out.devices = read_cluster(*devices, std::nullopt);
    }
    out.curves = read_curves(root.at("curves"));
    return out;
}

/// The cluster that is asked for, as its file has it.
Cluster unscaled_cluster(const ClusterRequest& request) {
    CalibrationFile calibration;
    if (request.calibration) {
        calibration = read_calibration(*request.calibration);
    }
    Cluster cluster;
    if (request.cluster) {
        cluster = cluster_named(*request.cluster, request.gpu);
    } else if (calibration.devices && !request.gpu) {
        cluster = std::move(*calibration.devices);
        cluster.calibrated = true;
    } else {
        const Gpu gpu = library_gpu(request.gpu.value_or(std::string(default_gpu)), "--gpu");
        cluster = cluster_named(gpu.usual_cluster, gpu.name);
    }
    put_in_front(std::move(calibration.curves), cluster.curves);
    return cluster;
}

void at_least_one(std::optional<std::int64_t> value, std::string_view option) {
    if (value && (*value < 1 || *value > most_gpus)) {
        throw Error(ErrorKind::input, std::string(option),
                    "expected a whole number from 1 to " + std::to_string(most_gpus) + ", found " +
                        std::to_string(*value));
    }
}

}  // namespace

Cluster find_cluster(const ClusterRequest& request) {
    at_least_one(request.gpus, "--gpus");
    at_least_one(request.gpus_per_node, "--gpus-per-node");
    Cluster cluster = unscaled_cluster(request);
    if (request.gpus_per_node) {
        cluster.gpus_per_node = *request.gpus_per_node;
        cluster.gpus = std::max(cluster.gpus, cluster.gpus_per_node);
    }
    if (request.gpus) {
        cluster.gpus = *request.gpus;
        if (!request.gpus_per_node) {
            cluster.gpus_per_node = std::min(cluster.gpus_per_node, cluster.gpus);
        }
    }
    if (cluster.gpus % cluster.gpus_per_node != 0) {
        throw Error(ErrorKind::input, "--gpus",
                    std::to_string(cluster.gpus) + " does not divide into nodes of " +
                        std::to_string(cluster.gpus_per_node));
    }
    cluster.budget = request.memory.value_or(cluster.gpu.memory);
    return cluster;
}

std::vector<Gpu> library_gpus() {
    std::vector<Gpu> gpus;
    for (const Named& entry : library(gpu_folder)) {
        const json::Document document(entry.content, entry.shown);
        gpus.push_back(read_gpu(document.root()));
    }
    return gpus;
}

std::vector<Cluster> library_clusters() {
    std::vector<Cluster> clusters;
    for (const Named& entry : library(node_folder)) {
        const json::Document document(entry.content, entry.shown);
        const bool has_gpu = document.root().find("gpu").has_value();
        clusters.push_back(
            read_cluster(document.root(), has_gpu ? std::nullopt : std::optional<std::string>(default_gpu)));
        clusters.back().budget = clusters.back().gpu.memory;
        if (!has_gpu) {
            clusters.back().gpu.name = "any";
        }
    }
    return clusters;
}

}  // namespace fsdplan
