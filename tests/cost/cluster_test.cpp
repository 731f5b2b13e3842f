#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "fsdplan/cost.hpp"

namespace fsdplan {
namespace {

std::string refusal(const ClusterRequest& request) {
    try {
        find_cluster(request);
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

std::string written(const std::string& name, const std::string& text) {
    const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / name;
    std::ofstream(path) << text;
    return path.string();
}

TEST(FindCluster, WithoutARequestIsOneNodeOfH100) {
    const Cluster cluster = find_cluster({});
    EXPECT_EQ(cluster.gpu.name, "h100-sxm");
    EXPECT_EQ(cluster.gpus, 8);
    EXPECT_EQ(cluster.nodes(), 1);
    // Of 79.1, 79.18 and 79.33 GiB reported the smallest.
    EXPECT_EQ(cluster.budget.count, static_cast<std::int64_t>(79.1 * 0x1p30));
}

TEST(FindCluster, NamesInAnyCaseAndWithSpaces) {
    EXPECT_EQ(find_cluster({.gpu = "H100_SXM"}).gpu.name, "h100-sxm");
    EXPECT_EQ(find_cluster({.gpu = "RTX 4090", .gpus = 2}).gpu.name, "rtx4090");
    EXPECT_EQ(find_cluster({.cluster = "AWS-P5", .gpus = 64}).nodes(), 8);
}

TEST(FindCluster, UnknownNamesGetNearOnes) {
    EXPECT_THAT(refusal({.gpu = "h100-smx"}), testing::HasSubstr("\"h100-sxm\""));
    EXPECT_THAT(refusal({.cluster = "awsp5"}), testing::HasSubstr("aws-p5"));
    EXPECT_THAT(refusal({.cluster = "nothing.json"}), testing::HasSubstr("no such file"));
    EXPECT_THAT(refusal({.cluster = "ethernet-100"}), testing::HasSubstr("names no GPU"));
}

TEST(FindCluster, GpusDivideIntoNodes) {
    EXPECT_EQ(refusal({.gpus = 24, .gpus_per_node = 16}), "--gpus: 24 does not divide into nodes of 16");
    EXPECT_EQ(refusal({.gpus = 0}), "--gpus: expected a whole number from 1 to 1048576, found 0");
    EXPECT_EQ(find_cluster({.gpus = 4}).gpus_per_node, 4);
    EXPECT_EQ(find_cluster({.gpus_per_node = 4}).gpus, 8);
}

TEST(FindCluster, MemoryIsTheBudget) {
    const Cluster cluster = find_cluster({.memory = 76_GiB});
    EXPECT_EQ(cluster.budget, 76_GiB);
    EXPECT_GT(cluster.gpu.memory, cluster.budget);
}

TEST(FindCluster, ReadsAFile) {
    const std::string file =
        written("mine.json", R"({"format": "fsdplan.cluster", "version": 1, "name": "mine",
        "gpu": "l40s", "gpus": 4, "gpus_per_node": 4, "network_GBps": 25, "curves": [
          {"id": "a", "collective": "all_gather", "ranks": 4, "nodes": 1, "lines": [[20, 10], [60, 20]]}]})");
    const Cluster cluster = find_cluster({.cluster = file});
    EXPECT_EQ(cluster.gpu.name, "l40s");
    ASSERT_EQ(cluster.curves.size(), 1U);
    // min(20 us + 1 MB / 10 GB/s, 60 us + 1 MB / 20 GB/s) = min(120, 110) us.
    const CollectiveTime time =
        collective_time(cluster, CollectiveKind::all_gather, Bytes{1'000'000}, {.ranks = 4, .nodes = 1});
    EXPECT_EQ(time.ns.value, 110'000);
    EXPECT_EQ(time.origin, Origin::fitted);
}

constexpr std::string_view two_ranks = R"([
    {"id": "mine", "collective": "all_gather", "ranks": 2, "nodes": 1, "points": [[1000, 10], [100000, 20]],
     "lines": [[10, 10]], "error": {"mean": 0.1, "worst": 0.2}, "samples": [[1000, 9, 10, 11], [100000, 20]]}])";

std::string calibration(std::string_view devices) {
    return R"({"format": "fsdplan.calibration", "version": 1, "made_by": {"fsdplan": "0.1.0", "backend": "mpi",
        "library": ""}, )" +
           std::string(devices) + R"("curves": )" + std::string(two_ranks) + "}";
}

TEST(FindCluster, PutsACalibrationInFrontOfItsOwnCurves) {
    const std::string file = written("curves.json", calibration(""));
    const Cluster cluster = find_cluster({.cluster = "aws-p5", .calibration = file});
    EXPECT_EQ(cluster.gpu.name, "h100-sxm");
    EXPECT_FALSE(cluster.calibrated);
    EXPECT_EQ(cluster.curves.size(), find_cluster({.cluster = "aws-p5"}).curves.size() + 1);
    const Placement pair{.ranks = 2, .nodes = 1};
    const auto time = [&](std::int64_t bytes) {
        return collective_time(cluster, CollectiveKind::all_gather, Bytes{bytes}, pair);
    };
    EXPECT_EQ(time(1000).ns.value, 10'000);
    EXPECT_EQ(time(1000).origin, Origin::measured);
    EXPECT_EQ(time(100'000).origin, Origin::measured);
    // Behind the last point as the line goes on: 20 us * (10 us + 1 MB / 10 GB/s) / (10 us + 0.1 MB / 10
    // GB/s).
    EXPECT_EQ(time(1'000'000).ns.value, 110'000);
    EXPECT_EQ(time(1'000'000).origin, Origin::extrapolated);
    EXPECT_EQ(time(999).origin, Origin::extrapolated);
}

TEST(FindCluster, TakesTheDevicesOfACalibrationWhereNoneAreNamed) {
    const std::string file = written("devices.json", calibration(R"("devices": {"format": "fsdplan.cluster",
        "version": 1, "name": "mine", "gpu": "l40s", "gpus": 2, "gpus_per_node": 2, "network_GBps": 1}, )"));
    const Cluster cluster = find_cluster({.calibration = file});
    EXPECT_EQ(cluster.gpu.name, "l40s");
    EXPECT_EQ(cluster.gpus, 2);
    EXPECT_TRUE(cluster.calibrated);
    EXPECT_EQ(find_cluster({.gpu = "h200", .calibration = file}).gpu.name, "h200");
}

TEST(FindCluster, RefusesWhatIsNoCalibration) {
    const std::string cluster = R"({"format": "fsdplan.cluster", "version": 1})";
    EXPECT_THAT(refusal({.calibration = written("e.json", cluster)}),
                testing::HasSubstr("#/format: expected \"fsdplan.calibration\""));
    EXPECT_THAT(refusal({.calibration = written("f.json", calibration(R"("device": 1, )"))}),
                testing::HasSubstr("devices"));
    EXPECT_THAT(refusal({.calibration = "no-such-file.json"}), testing::HasSubstr("no-such-file.json"));
}

TEST(FindCluster, RefusesBrokenFiles) {
    const std::string head = R"({"format": "fsdplan.cluster", "version": 1, "name": "x", "gpu": "l40s", )";
    EXPECT_THAT(refusal({.cluster = written("a.json", head + R"("gpus_per_node": 0, "network_GBps": 1})")}),
                testing::HasSubstr("#/gpus_per_node"));
    EXPECT_THAT(refusal({.cluster = written("b.json", head + R"("gpus_per_node": 8, "network_GBps": -1})")}),
                testing::HasSubstr("#/network_GBps: expected a number above 0"));
    EXPECT_THAT(
        refusal({.cluster = written("c.json", head + R"("gpus_per_node": 8, "network_GBps": 1, "curves": [
        {"id": "a", "collective": "all_gather", "ranks": 8, "nodes": 1, "points": [[2048, 1], [1024, 2]]}]})")}),
        testing::HasSubstr("sizes that rise"));
    EXPECT_THAT(refusal({.cluster = written("d.json", head + R"("gpus_per_node": 8, "network": 1})")}),
                testing::HasSubstr("network"));
}

TEST(Library, EveryEntryIsReadableAndFound) {
    EXPECT_GE(library_gpus().size(), 16U);
    EXPECT_GE(library_clusters().size(), 12U);
    for (const Gpu& gpu : library_gpus()) {
        const Cluster cluster = find_cluster({.gpu = gpu.name});
        EXPECT_EQ(cluster.gpu.name, gpu.name);
        EXPECT_GT(cluster.network_bytes_per_s, 0.0);
        EXPECT_FALSE(gpu.source.empty());
        EXPECT_LE(gpu.constants.products.high, 1.0) << gpu.name;
    }
    for (const Cluster& cluster : library_clusters()) {
        for (const CollectiveCurve& curve : cluster.curves) {
            EXPECT_FALSE(curve.source.empty()) << curve.id;
        }
    }
}

}  // namespace
}  // namespace fsdplan
