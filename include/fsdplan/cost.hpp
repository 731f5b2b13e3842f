#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fsdplan/base.hpp"
#include "fsdplan/model.hpp"
#include "fsdplan/schedule.hpp"

// Hardware as data, and what work costs on it.
namespace fsdplan {

/// A number that no data sheet has: fitted to measurements, published, or assumed.
struct Constant {
    double value = 0.0;
    double low = 0.0;  ///< … and the ends of what it may be
    double high = 0.0;
    std::string source;  ///< empty: nothing is known, and the same is taken for every GPU
};

struct GpuConstants {
    Constant products;            ///< share of the dense peak that large matrix products keep up
    Constant product_start;       ///< depth k whose work takes as long as a tile's start
    Constant attention_forward;   ///< share of the dense peak, FlashAttention 2, long sequences
    Constant attention_backward;  ///< the same
    Constant memory;              ///< share of the memory's bandwidth that large kernels keep up
    Constant overlap;             ///< speed that kernels keep while a collective runs
};

struct Gpu {
    std::string name;   ///< "h100-sxm"
    std::string title;  ///< "NVIDIA H100 SXM 80GB"
    std::string architecture;
    Bytes memory;                        ///< as CUDA sees it; the smallest of the reported values
    std::vector<double> memory_reports;  ///< GiB, all values that were reported
    std::int64_t sm_count = 0;
    double memory_bytes_per_s = 0.0;
    /// Traffic that takes as long as the start of a kernel that streams memory.
    double kernel_start_bytes = 2.0 * 1024 * 1024;
    double flops_half = 0.0;    ///< bf16 or fp16, dense, per second
    double flops_single = 0.0;  ///< fp32
    GpuConstants constants;
    double link_bytes_per_s = 0.0;  ///< NVLink or the like, per direction; 0: none
    bool all_to_all_links = false;  ///< every GPU of a node reaches every other over such links (NVSwitch)
    double pcie_bytes_per_s = 0.0;  ///< per direction
    std::int64_t cublas_workspace_bytes = 0;
    std::string usual_cluster;  ///< where it is usually found
    std::string source;
};

/// A measured or fitted time over size of one collective on one group.
struct CollectiveCurve {
    std::string id;
    CollectiveKind kind{};
    std::int64_t ranks = 0;
    std::int64_t nodes = 0;
    struct Point {
        double bytes;
        double us;
    };
    std::vector<Point> points;  ///< measured; rising sizes
    struct Line {
        double us;
        double bytes_per_us;
    };
    /// t = min over lines of us + bytes / bytes_per_us: all there is when there are no points, else how it
    /// goes on behind the last one.
    std::vector<Line> lines;
    double plateau_bytes_per_s = 0.0;  ///< bus bandwidth for large sizes, when that is all that is known
    std::string source;
};

/// The collectives that have curves.
inline constexpr std::array curve_kinds{CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                                        CollectiveKind::all_reduce};
/// Which of them has this name.
std::optional<CollectiveKind> find_curve_kind(std::string_view name);

/// Time in microseconds that the lines, at least one, say for a size.
double on_lines(const std::vector<CollectiveCurve::Line>& lines, double bytes);

constexpr std::int64_t most_gpus = std::int64_t{1} << 20U;  // of a cluster

struct Cluster {
    std::string name;
    std::string title;
    Gpu gpu;
    std::int64_t gpus = 1;
    std::int64_t gpus_per_node = 1;
    double network_bytes_per_s = 0.0;  ///< of one node, per direction
    std::vector<CollectiveCurve> curves;
    std::string source;
    bool calibrated = false;  ///< GPU and nodes are those of a calibration
    Bytes budget;             ///< memory that a process may use: the GPU's, or what the user allows

    std::int64_t nodes() const { return ceil_div(gpus, gpus_per_node); }
};

/// What the command line says about hardware.
struct ClusterRequest {
    std::optional<std::string> cluster;  ///< a name, or a file in the format of models/clusters
    std::optional<std::string> gpu;
    std::optional<std::int64_t> gpus;
    std::optional<std::int64_t> gpus_per_node;
    std::optional<Bytes> memory;
    /// A file that `fsdplan calibrate` wrote. Its curves come before the cluster's own, and its devices stand
    /// where neither a cluster nor a GPU is named.
    std::optional<std::string> calibration;
};

/// Throws Error(input) for unknown names (with near ones) and for GPUs that do not divide into nodes. Without
/// a cluster a GPU stands in its usual one; without either it is one node of H100.
Cluster find_cluster(const ClusterRequest& request);

/// One sentence a constant of which nothing is known for this GPU.
std::vector<std::string> assumed_constants(const Gpu& gpu);

/// What the library holds.
std::vector<Gpu> library_gpus();
std::vector<Cluster> library_clusters();

/// Where an estimate comes from.
enum class Origin : std::uint8_t {
    exact,
    measured,      ///< interpolated on a measured curve of this collective and group
    extrapolated,  ///< the same curve, beyond the sizes that were measured
    scaled,        ///< from a measured curve of another group size, or of the mirrored collective
    fitted,        ///< straight lines fitted to measurements
    model,         ///< NCCL's own formulas on the links' speeds
};
std::string_view name(Origin origin);

/// Ranks that communicate, as they lie on the nodes.
struct Placement {
    std::int64_t ranks = 1;
    std::int64_t nodes = 1;    ///< that the group spans
    std::int64_t sharing = 1;  ///< groups that use a node's network at the same time
};
Placement place(RankGroup group, const Mesh& mesh, const Cluster& cluster, std::int64_t ranks);

struct CollectiveTime {
    Estimate ns;
    Origin origin = Origin::model;
    std::string_view curve;  ///< id of the curve used, if any
};

/// Time of one collective of full size `size` (nccl-tests' S).
///
/// Log-log interpolation of a measured curve where there is one, else fitted lines, else NCCL's latency and
/// bandwidth model with the plateau of the links. One rank moves nothing and costs a launch.
CollectiveTime collective_time(const Cluster& cluster, CollectiveKind kind, Bytes size,
                               const Placement& group);

/// Share of the best product's rate that one of this shape reaches, by its tiles alone: those at the edges
/// are filled in part, the last wave of them does not occupy every SM, and each begins by loading along k.
double product_share(const Gpu& gpu, const KernelShape& shape);

/// One kernel for the product: limited by its operations, or when it is thin by its operands in memory.
Estimate product_time(const Gpu& gpu, const KernelShape& shape);
/// Products of which only the operations are known: as deep as layers usually are.
Estimate product_time(const Gpu& gpu, double flops, DType dtype);

struct AttentionKernel {
    bool backward = false;
    int generation = 2;  ///< of FlashAttention
};
/// Flash attention of `flops` operations (of a causal one, those it cannot leave out).
Estimate attention_time(const Gpu& gpu, const KernelShape& shape, double flops, AttentionKernel kernel);
/// The same when only the operations are known: as slow as backward, which is most of it.
Estimate attention_time(const Gpu& gpu, double flops);

/// `kernels` that stream `bytes` through device memory: each as if it carried 2 MiB more.
Estimate memory_time(const Gpu& gpu, double bytes, std::int64_t kernels = 1);

}  // namespace fsdplan
