#include <gtest/gtest.h>

#include "schedules.hpp"

namespace fsdplan {
namespace {

using simulated::Script;

class Price : public testing::Test {
protected:
    OpTimes priced(Bound bound = Bound::value) const {
        OpTimes times;
        price(script.schedule, cluster, pricing, collective_times(script.schedule, cluster, pricing), bound,
              times);
        return times;
    }

    Script script;
    Cluster cluster = find_cluster({});  // H100: 3350 GB/s, 64 GB/s of PCIe
    Pricing pricing{.mesh = {.replicate = 1, .shard = 8}};
};

TEST_F(Price, CollectivesCostWhatTheCostModelSays) {
    script.gather(0);
    const CollectiveCall& call = script.schedule.collectives.front();
    const CollectiveTime expected = collective_time(cluster, call.kind, call.full_size(), {.ranks = 8});
    EXPECT_EQ(priced().device_ns.front(), expected.ns.value);
    EXPECT_EQ(priced(Bound::high).device_ns.front(), expected.ns.high);
    EXPECT_EQ(collective_times(script.schedule, cluster, pricing).front().origin, expected.origin);
    EXPECT_EQ(priced().host_ns.front(), pricing.host.collective_ns.value);
}

TEST_F(Price, KernelsCostTheSlowerOfProductsAndBytes) {
    script.add({.kind = OpKind::compute, .launches = 1, .bytes = 1'000'000, .flops = 1'000'000'000'000});
    script.add({.kind = OpKind::compute, .launches = 1, .bytes = 1'000'000'000, .flops = 1'000'000});
    EXPECT_EQ(priced().device_ns[0], product_time(cluster.gpu, 1e12, DType::bfloat16).value);
    EXPECT_EQ(priced().device_ns[1], memory_time(cluster.gpu, 1e9).value);
    EXPECT_EQ(priced().host_ns[0], pricing.host.launch_ns.value);
}

TEST_F(Price, ShapesCountWhereTheyAreKnown) {
    script.schedule.shapes = {{.m = 4096, .n = 8192, .k = 1024},
                              {.m = 4096, .n = 4096, .k = 128, .causal = true}};
    const auto attention = static_cast<std::uint8_t>(ComputeKind::attention);
    script.add({.kind = OpKind::compute, .target = 0, .launches = 1, .flops = 2LL * 4096 * 8192 * 1024});
    script.add({.kind = OpKind::compute,
                .detail = attention,
                .target = 1,
                .launches = 1,
                .flops = 1'000'000'000'000});
    script.add({.kind = OpKind::compute,
                .pass = Pass::backward,
                .detail = attention,
                .target = 1,
                .launches = 1,
                .flops = 1'000'000'000'000});
    const std::vector<KernelShape>& shapes = script.schedule.shapes;
    EXPECT_EQ(priced().device_ns[0], product_time(cluster.gpu, shapes[0]).value);
    EXPECT_EQ(priced().device_ns[1], attention_time(cluster.gpu, shapes[1], 1e12, {}).value);
    EXPECT_EQ(priced().device_ns[2], attention_time(cluster.gpu, shapes[1], 1e12, {.backward = true}).value);
    pricing.flash_attention = 1;
    EXPECT_EQ(priced().device_ns[1], attention_time(cluster.gpu, shapes[1], 1e12, {.generation = 1}).value);
}

TEST_F(Price, ShapesThatShareAPlaceInTheTableKeepTheirTimes) {
    for (int i = 0; i < 3000; ++i) {
        script.add({.kind = OpKind::compute, .launches = 1, .bytes = 4'000'000LL * (i % 1500)});
    }
    const OpTimes times = priced();
    for (std::size_t i = 0; i < 3000; ++i) {
        const auto bytes = static_cast<double>(script.schedule.ops[i].bytes);
        ASSERT_EQ(times.device_ns[i], memory_time(cluster.gpu, bytes).value) << i;
    }
}

TEST_F(Price, ACopyReadsAndWrites) {
    script.add({.kind = OpKind::copy, .bytes = 500'000'000});
    EXPECT_EQ(priced().device_ns[0], memory_time(cluster.gpu, 1e9).value);
    EXPECT_EQ(priced().host_ns[0], pricing.host.launch_ns.value);
}

TEST_F(Price, TransfersCrossPcie) {
    script.add({.kind = OpKind::to_host, .bytes = 54'400'000'000});
    // 54.4 GB at 0.85 of 64 GB/s.
    EXPECT_EQ(priced().device_ns[0], 1'000'000'000);
}

TEST_F(Price, TheHostPaysForHooksEventsAndMemory) {
    script.add({.kind = OpKind::host, .target = static_cast<std::int32_t>(HostWork::unit_hook)});
    script.add(
        {.kind = OpKind::host, .target = static_cast<std::int32_t>(HostWork::optimizer), .launches = 10});
    const std::int32_t event = script.record(Stream::gather);
    script.wait(Stream::compute, event);
    script.wait(Stream::compute, -1);
    script.allocate(script.buffer(512, Category::activation));
    const OpTimes times = priced();
    EXPECT_EQ(times.host_ns[0], pricing.host.unit_hook_ns.value);
    EXPECT_EQ(times.host_ns[1], pricing.host.optimizer_ns.value + 10 * pricing.host.launch_ns.value);
    EXPECT_EQ(times.host_ns[2], pricing.host.event_ns.value);
    EXPECT_EQ(times.device_ns[3], pricing.host.wait_ns.value);
    EXPECT_EQ(times.device_ns[4], 0);
    EXPECT_EQ(times.host_ns[5], pricing.host.allocator_ns.value);
}

TEST_F(Price, LowIsNeverAboveHigh) {
    script.gather(0);
    script.compute(0);
    script.add({.kind = OpKind::copy, .bytes = 1 << 20});
    script.add({.kind = OpKind::to_host, .bytes = 1 << 20});
    script.host(0);
    for (std::size_t i = 0; i < script.schedule.ops.size(); ++i) {
        EXPECT_LE(priced(Bound::low).device_ns[i], priced().device_ns[i]);
        EXPECT_LE(priced().device_ns[i], priced(Bound::high).device_ns[i]);
        EXPECT_LE(priced(Bound::low).host_ns[i], priced().host_ns[i]);
        EXPECT_LE(priced().host_ns[i], priced(Bound::high).host_ns[i]);
    }
}

}  // namespace
}  // namespace fsdplan
