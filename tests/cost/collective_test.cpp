#include <gtest/gtest.h>

#include <cmath>

#include "fsdplan/cost.hpp"

namespace fsdplan {
namespace {

Placement on(std::int64_t ranks, std::int64_t nodes) {
    return {.ranks = ranks, .nodes = nodes};
}

TEST(CollectiveTime, IsTheMeasuredPointWhereThereIsOne) {
    const Cluster cluster = find_cluster({.cluster = "hgx-b200"});
    // b200-1node-ag: 16 GiB in 22,357 us.
    const CollectiveTime time = collective_time(cluster, CollectiveKind::all_gather, 16_GiB, on(8, 1));
    EXPECT_EQ(time.origin, Origin::measured);
    EXPECT_EQ(time.curve, "b200-1node-ag");
    EXPECT_EQ(time.ns.value, 22'357'000);
}

TEST(CollectiveTime, InterpolatesBetweenPoints) {
    const Cluster cluster = find_cluster({.cluster = "aws-p5"});
    // 1 MiB 28.56 us, 2 MiB 43.45 us: half way in logarithms is their geometric mean.
    const auto size = static_cast<std::int64_t>(std::llround(std::sqrt(2.0) * 0x1p20));
    const CollectiveTime time = collective_time(cluster, CollectiveKind::all_reduce, Bytes{size}, on(8, 1));
    EXPECT_NEAR(static_cast<double>(time.ns.value), std::sqrt(28.56 * 43.45) * 1e3, 2.0);
}

TEST(CollectiveTime, ExtrapolatesWithTheLastBandwidth) {
    const Cluster cluster = find_cluster({.cluster = "aws-p5"});
    const auto time = [&](Bytes size) {
        return collective_time(cluster, CollectiveKind::all_reduce, size, on(8, 1)).ns.value;
    };
    EXPECT_EQ(time(32_GiB), 2 * time(16_GiB));
}

TEST(CollectiveTime, OneRankMovesNothing) {
    const CollectiveTime time =
        collective_time(find_cluster({}), CollectiveKind::all_gather, 1_GiB, on(1, 1));
    EXPECT_LT(time.ns.value, 20'000);
}

TEST(CollectiveTime, RisesWithSizeForEveryGpuAndGroup) {
    for (const Gpu& gpu : library_gpus()) {
        for (const std::int64_t nodes : {1, 2, 16}) {
            const Cluster cluster = find_cluster({.gpu = gpu.name, .gpus = 8 * nodes, .gpus_per_node = 8});
            for (const CollectiveKind kind :
                 {CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::all_reduce}) {
                std::int64_t before = 0;
                for (std::int64_t size = 1 << 20; size <= std::int64_t{16} << 30; size *= 4) {
                    const CollectiveTime time =
                        collective_time(cluster, kind, Bytes{size}, on(8 * nodes, nodes));
                    EXPECT_GT(time.ns.value, before) << gpu.name << ' ' << name(kind) << ' ' << nodes;
                    EXPECT_LE(time.ns.low, time.ns.value);
                    EXPECT_GE(time.ns.high, time.ns.value);
                    before = time.ns.value;
                }
            }
        }
    }
}

// The model, asked about groups that were measured, without their curves: within its interval from 16 MiB up.
TEST(CollectiveTime, ModelHoldsWhatWasMeasured) {
    struct Case {
        const char* cluster;
        CollectiveKind kind;
        std::int64_t ranks;
        std::int64_t nodes;
    };
    for (const Case& c : {Case{"hgx-b200", CollectiveKind::all_gather, 8, 1},
                          Case{"hgx-b200", CollectiveKind::reduce_scatter, 8, 1},
                          Case{"gcp-a4", CollectiveKind::all_gather, 16, 2},
                          Case{"gcp-a3-mega", CollectiveKind::all_gather, 16, 2}}) {
        const Cluster measured = find_cluster({.cluster = c.cluster, .gpus = c.ranks});
        Cluster bare = measured;
        bare.curves.clear();
        for (std::int64_t size = 1 << 24; size <= std::int64_t{8} << 30; size *= 2) {
            const Placement group = on(c.ranks, c.nodes);
            const std::int64_t truth = collective_time(measured, c.kind, Bytes{size}, group).ns.value;
            const CollectiveTime model = collective_time(bare, c.kind, Bytes{size}, group);
            EXPECT_EQ(model.origin, Origin::model);
            EXPECT_LE(model.ns.low, truth) << c.cluster << ' ' << size;
            EXPECT_GE(model.ns.high, truth) << c.cluster << ' ' << size;
        }
    }
}

TEST(Place, ReplicasShareTheirNodesNetwork) {
    const Cluster cluster = find_cluster({.cluster = "dgx-h100", .gpus = 32});
    const Mesh mesh{.replicate = 4, .shard = 8};
    EXPECT_EQ(place(RankGroup::shard, mesh, cluster, 8).nodes, 1);
    const Placement replicas = place(RankGroup::replicate, mesh, cluster, 4);
    EXPECT_EQ(replicas.nodes, 4);
    EXPECT_EQ(replicas.sharing, 8);
    EXPECT_EQ(place(RankGroup::shard, {.replicate = 1, .shard = 32}, cluster, 32).nodes, 4);
}

}  // namespace
}  // namespace fsdplan
