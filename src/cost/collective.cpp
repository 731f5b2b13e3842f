#include <algorithm>
#include <array>
#include <cmath>

#include "fsdplan/cost.hpp"

namespace fsdplan {
namespace {

constexpr double us = 1e-6;
// Launch and host time, which NCCL's own formulas leave out (they are that much too fast on small messages).
constexpr double launch_us = 5.0;

// Latencies in microseconds of NCCL 2.28 (src/graph/tuning.cc), ring: base, hop over NVLink, hop over PCIe,
// hop over the network; and the share of the bus bandwidth that the protocol reaches.
struct Protocol {
    double base_us;
    double link_hop_us;
    double pcie_hop_us;
    double network_hop_us;
    double share;
};
constexpr std::array<Protocol, 3> protocols{
    {{6.6, 0.6, 1.0, 2.7, 0.5}, {14.0, 1.9, 2.5, 4.0, 0.92}, {8.4, 3.4, 5.7, 14.0, 1.0}}};

// Shares of a link's data-sheet rate that large ring collectives reach: NVLink 0.8 (240 of 300, 360 of 450,
// 720 of 900 GB/s), networks 0.77 to 0.96 (308 to 366 and 188 of 192 GB/s measured).
constexpr double link_share = 0.8;
constexpr double network_share = 0.88;
// PCIe carries both directions of a ring and often goes through host memory.
constexpr double pcie_share = 0.45;

double steps(CollectiveKind kind, std::int64_t ranks) {
    return static_cast<double>(kind == CollectiveKind::all_reduce ? 2 * (ranks - 1) : ranks - 1);
}

/// Bytes that cross each wire of a ring: what bus bandwidth is measured in.
double bus_bytes(CollectiveKind kind, double size, std::int64_t ranks) {
    return size * steps(kind, ranks) / static_cast<double>(ranks);
}

/// Beyond two nodes the bandwidth falls slowly: 360, 345, 320, 300, 280, 260 GB/s at 4 to 128 nodes of H100.
double scaling(std::int64_t nodes) {
    return nodes <= 2 ? 1.0 : std::max(0.5, 1.0 - 0.045 * std::log2(static_cast<double>(nodes) / 2.0));
}

bool has_fast_links(const Gpu& gpu, std::int64_t ranks_in_node) {
    return gpu.link_bytes_per_s > 0.0 && (gpu.all_to_all_links || ranks_in_node <= 2);
}

double plateau_in_node(const Gpu& gpu, std::int64_t ranks_in_node) {
    return has_fast_links(gpu, ranks_in_node) ? gpu.link_bytes_per_s * link_share
                                              : gpu.pcie_bytes_per_s * pcie_share;
}

double plateau(const Cluster& cluster, const Placement& group) {
    const std::int64_t in_node = ceil_div(group.ranks, group.nodes);
    const double network = cluster.network_bytes_per_s * network_share * scaling(group.nodes) /
                           static_cast<double>(group.sharing);
    if (group.nodes == 1) {
        return plateau_in_node(cluster.gpu, in_node);
    }
    return in_node == 1 ? network : std::min(network, plateau_in_node(cluster.gpu, in_node));
}

/// NCCL's `latency + size / bandwidth` for each protocol of the ring; the smallest counts.
double model_us(const Cluster& cluster, CollectiveKind kind, double size, const Placement& group,
                double bus_bytes_per_s) {
    const bool links = has_fast_links(cluster.gpu, ceil_div(group.ranks, group.nodes));
    const double all_steps = steps(kind, group.ranks);
    const double network_steps = steps(kind, group.nodes);
    double best = 0.0;
    for (const Protocol& protocol : protocols) {
        const double hop = links ? protocol.link_hop_us : protocol.pcie_hop_us;
        const double latency =
            protocol.base_us + (all_steps - network_steps) * hop + network_steps * protocol.network_hop_us;
        const double time =
            latency + bus_bytes(kind, size, group.ranks) / (bus_bytes_per_s * protocol.share) / us;
        best = best == 0.0 ? time : std::min(best, time);
    }
    return launch_us + best;
}

/// Log-log interpolation, within the sizes that were measured.
double on_points(const std::vector<CollectiveCurve::Point>& points, double size) {
    const auto above = std::ranges::upper_bound(points, size, {}, &CollectiveCurve::Point::bytes);
    const auto below = above - 1;
    const double part = std::log(size / below->bytes) / std::log(above->bytes / below->bytes);
    return below->us * std::pow(above->us / below->us, part);
}

/// Behind its last point a curve is continued by its lines, which it meets there, or else as fast as it was.
double behind_points(const CollectiveCurve& curve, double size) {
    const CollectiveCurve::Point& last = curve.points.back();
    return last.us * (curve.lines.empty() ? size / last.bytes
                                          : on_lines(curve.lines, size) / on_lines(curve.lines, last.bytes));
}

bool is_measured(const CollectiveCurve& curve, double size) {
    return size >= curve.points.front().bytes && size <= curve.points.back().bytes;
}

/// Below its first point a curve is continued by the model, which it meets there.
double on_curve(const Cluster& cluster, const CollectiveCurve& curve, CollectiveKind kind, double size,
                const Placement& group, double bus_bytes_per_s) {
    if (!curve.lines.empty() && curve.points.size() < 2) {
        return on_lines(curve.lines, size);
    }
    if (size >= curve.points.back().bytes) {
        return behind_points(curve, size);
    }
    if (size >= curve.points.front().bytes) {
        return on_points(curve.points, size);
    }
    const double first = curve.points.front().bytes;
    return curve.points.front().us * model_us(cluster, kind, size, group, bus_bytes_per_s) /
           model_us(cluster, kind, first, group, bus_bytes_per_s);
}

/// An all-gather and a reduce-scatter move the same bytes over the same ring.
bool mirrored(CollectiveKind a, CollectiveKind b) {
    return a == b || (a != CollectiveKind::all_reduce && b != CollectiveKind::all_reduce);
}

/// The curve that says most about a group: its own collective before the mirrored one, its own size before
/// others of the same kind (inside a node, or across).
const CollectiveCurve* best_curve(const Cluster& cluster, CollectiveKind kind, const Placement& group) {
    const CollectiveCurve* best = nullptr;
    int best_score = 0;
    for (const CollectiveCurve& curve : cluster.curves) {
        const bool same_reach = (curve.nodes == 1) == (group.nodes == 1);
        const bool whole_nodes = group.sharing == 1;
        if (!mirrored(curve.kind, kind) || !same_reach || !whole_nodes) {
            continue;
        }
        const int score = 1 + (curve.kind == kind ? 1 : 0) +
                          (curve.ranks == group.ranks && curve.nodes == group.nodes ? 2 : 0) +
                          (curve.points.size() >= 2 ? 4
                           : curve.lines.empty()    ? 0
                                                    : 2);
        if (score > best_score) {
            best = &curve;
            best_score = score;
        }
    }
    return best;
}

Estimate around(double time_us, double low, double high) {
    const auto ns = [](double value) { return static_cast<std::int64_t>(std::llround(value * 1e3)); };
    return {ns(time_us), ns(time_us * low), ns(time_us * high)};
}

}  // namespace

double on_lines(const std::vector<CollectiveCurve::Line>& lines, double bytes) {
    double best = lines.front().us + bytes / lines.front().bytes_per_us;
    for (const CollectiveCurve::Line& line : lines) {
        best = std::min(best, line.us + bytes / line.bytes_per_us);
    }
    return best;
}

std::string_view name(Origin origin) {
    switch (origin) {
        case Origin::exact:
            return "exact";
        case Origin::measured:
            return "measured";
        case Origin::extrapolated:
            return "beyond what was measured";
        case Origin::scaled:
            return "scaled from a measurement";
        case Origin::fitted:
            return "fitted lines";
        case Origin::model:
            return "model";
    }
    return "";
}

Placement place(RankGroup group, const Mesh& mesh, const Cluster& cluster, std::int64_t ranks) {
    const std::int64_t per_node = cluster.gpus_per_node;
    if (group == RankGroup::replicate && mesh.shard > 1) {
        // Replicas lie `shard` ranks apart; the ranks between them communicate at the same time.
        const std::int64_t in_node = std::max<std::int64_t>(1, per_node / mesh.shard);
        const std::int64_t nodes = ceil_div(ranks, in_node);
        return {.ranks = ranks, .nodes = nodes, .sharing = nodes == 1 ? 1 : std::min(mesh.shard, per_node)};
    }
    const std::int64_t nodes = ceil_div(ranks, per_node);
    return {.ranks = ranks, .nodes = nodes, .sharing = 1};
}

CollectiveTime collective_time(const Cluster& cluster, CollectiveKind kind, Bytes size,
                               const Placement& group) {
    if (group.ranks <= 1) {
        return {.ns = around(launch_us, 0.5, 2.0), .origin = Origin::model, .curve = {}};
    }
    const auto bytes = static_cast<double>(std::max<std::int64_t>(1, size.count));
    const double modelled_plateau = plateau(cluster, group);
    const CollectiveCurve* curve = best_curve(cluster, kind, group);
    if (curve == nullptr) {
        // Measured against curves: 4 to 20 % too fast on plateaus, 25 to 50 % between 1 and 128 MiB on two
        // nodes.
        const double time = model_us(cluster, kind, bytes, group, modelled_plateau);
        const bool slow_links = group.nodes == 1 && !has_fast_links(cluster.gpu, group.ranks);
        return {.ns = around(time * 1.1, 0.8, slow_links ? 2.5 : 1.5), .origin = Origin::model, .curve = {}};
    }
    if (curve->points.size() < 2 && curve->lines.empty()) {
        const double plateau_here = curve->plateau_bytes_per_s * scaling(group.nodes) / scaling(curve->nodes);
        const double time = model_us(cluster, kind, bytes, group, plateau_here);
        return {.ns = around(time, 0.9, 1.4), .origin = Origin::scaled, .curve = curve->id};
    }
    const bool own_group = curve->ranks == group.ranks && curve->nodes == group.nodes;
    if (own_group && curve->kind == kind) {
        const double time = on_curve(cluster, *curve, kind, bytes, group, modelled_plateau);
        if (curve->points.size() < 2) {
            return {.ns = around(time, 0.85, 1.3), .origin = Origin::fitted, .curve = curve->id};
        }
        const Origin origin = is_measured(*curve, bytes) ? Origin::measured : Origin::extrapolated;
        return {.ns = around(time, 0.9, 1.2), .origin = origin, .curve = curve->id};
    }
    // Another group: the same bytes on the wire, the latency of the additional hops, the slower wire.
    const Placement measured{.ranks = curve->ranks, .nodes = curve->nodes, .sharing = 1};
    const double same_bus_size =
        bytes * bus_bytes(kind, 1.0, group.ranks) / bus_bytes(kind, 1.0, curve->ranks);
    const double there = on_curve(cluster, *curve, kind, same_bus_size, measured, plateau(cluster, measured));
    const double latency_here = model_us(cluster, kind, 1.0, group, modelled_plateau);
    const double latency_there = model_us(cluster, kind, 1.0, measured, plateau(cluster, measured));
    const double time = std::max(
        launch_us, there * scaling(curve->nodes) / scaling(group.nodes) + (latency_here - latency_there));
    return {.ns = around(time, 0.8, 1.5), .origin = Origin::scaled, .curve = curve->id};
}

}  // namespace fsdplan
