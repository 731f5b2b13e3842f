#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdplan/calibrate.hpp"

namespace fsdplan {
namespace {

constexpr std::string_view head = R"(# nccl-tests version 2.17.0 nccl-headers=22707 nccl-library=22707
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 2 minBytes 1024 maxBytes 4194304 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
#  Rank  0 Group  0 Pid   43 on    host-a device  0 [0x07] NVIDIA H100
#  Rank  1 Group  0 Pid   43 on    host-a device  1 [0x0f] NVIDIA H100
#  Rank  2 Group  0 Pid   71 on    host-b device  0 [0x07] NVIDIA H100
#  Rank  3 Group  0 Pid   71 on    host-b device  1 [0x0f] NVIDIA H100
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
)";
constexpr std::string_view rows =
    R"(           0             0     float     sum      -1     0.19    0.00    0.00      0     0.16    0.00    0.00      0
        1024           256     float     sum      -1    20.50    0.05    0.07      0    20.10    0.05    0.07      0
host-a:43:51 [0] NCCL INFO Channel 00/08 : 0 1 2 3
     4194304       1048576     float     sum      -1    80.00   52.43   78.64    N/A    79.00   53.09   79.64    N/A
)";

std::string with_rows(std::string_view text) {
    return std::string(head) + std::string(text);
}

std::vector<std::string> faults(std::string_view log, const LogOptions& options = {}) {
    std::vector<std::string> out;
    try {
        read_nccl_tests(log, "a.log", options);
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::input);
        for (const Fault& fault : error.faults()) {
            out.push_back(fault.where + ": " + fault.message);
        }
    }
    return out;
}

TEST(ReadNcclTests, TakesTheTimesThatAreNotInPlace) {
    const std::vector<CalibratedCurve> curves = read_nccl_tests(with_rows(rows), "a.log");
    ASSERT_EQ(curves.size(), 1U);
    EXPECT_EQ(curves[0].kind, CollectiveKind::all_reduce);
    EXPECT_EQ(curves[0].ranks, 4);
    EXPECT_EQ(curves[0].nodes, 2);
    ASSERT_EQ(curves[0].samples.size(), 2U);  // nothing is sent at size 0
    EXPECT_EQ(curves[0].samples[0].bytes, 1024);
    EXPECT_THAT(curves[0].samples[0].us, testing::ElementsAre(20.5));
    EXPECT_THAT(curves[0].samples[1].us, testing::ElementsAre(80.0));
}

TEST(ReadNcclTests, PutsSeveralRunsTogether) {
    const std::vector<CalibratedCurve> curves = read_nccl_tests(with_rows(rows) + with_rows(rows), "a.log");
    ASSERT_EQ(curves.size(), 1U);
    EXPECT_EQ(curves[0].ranks, 4);
    EXPECT_THAT(curves[0].samples[0].us, testing::ElementsAre(20.5, 20.5));
}

TEST(ReadNcclTests, SaysOnceWhatALogLeavesOpen) {
    EXPECT_THAT(faults(rows),
                testing::ElementsAre("a.log:2: nothing says which collective this is; add --collective"));
    EXPECT_THAT(faults(rows, {.kind = CollectiveKind::all_reduce}),
                testing::ElementsAre("a.log:2: nothing says how many ranks took part; add --ranks"));
    EXPECT_EQ(read_nccl_tests(rows, "a.log", {.kind = CollectiveKind::all_reduce, .ranks = 4})[0].nodes, 1);
}

TEST(ReadNcclTests, NoticesAnotherCollectiveByItsBandwidths) {
    // 78.64 / 52.43 is 2 * 3/4, as an all-reduce over 4 ranks has it.
    EXPECT_THAT(faults(with_rows(rows), {.kind = CollectiveKind::reduce_scatter}),
                testing::ElementsAre("a.log:17: bus bandwidth is 1.50 times algorithm bandwidth; "
                                     "reduce_scatter over 4 ranks has 0.75"));
}

TEST(ReadNcclTests, NamesEveryBadRow) {
    EXPECT_THAT(faults(with_rows("1024 256 float sum -1 20.5\n"
                                 "2048 512 float sum -1 fast 0.05 0.07 0\n"
                                 "4096 1024 float sum -1 -3 0.05 0.07 0\n"
                                 "8192 2048 float sum -1 nan 0.05 0.07 0\n"
                                 "8192 2048 float sum -1 1e-200 0.05 0.07 0\n"
                                 "8192 2048 float sum -1 20.5 x 0.07 0\n"
                                 "99999999999999999999 2048 float sum -1 20.5 1 1 0\n"
                                 "8192 2048 float sum -1 20.5 0.40 0.60 17\n")),
                testing::ElementsAre("a.log:14: expected 8 columns or more, found 6",
                                     "a.log:15: expected a time in microseconds, found \"fast\"",
                                     "a.log:16: expected a time in microseconds, found \"-3\"",
                                     "a.log:17: expected a time in microseconds, found \"nan\"",
                                     "a.log:18: expected a time in microseconds, found \"1e-200\"",
                                     "a.log:19: expected two bandwidths in GB/s, found \"x\" and \"0.07\"",
                                     "a.log:20: expected a size in bytes, found \"99999999999999999999\"",
                                     "a.log:21: says that 17 values came out wrong"));
}

TEST(ReadNcclTests, RefusesWhatHasNoRows) {
    EXPECT_THAT(faults(""), testing::ElementsAre(testing::HasSubstr("has no row of all_gather_perf")));
    EXPECT_THAT(faults("#\n# Rank\n# Rank 0 on\n\0\xff\n"), testing::SizeIs(1));
    EXPECT_THAT(faults(with_rows("1024 256 float sum -1 20.5 0.05 0.07 0\n")),
                testing::ElementsAre(testing::HasSubstr("measured at one size only")));
}

}  // namespace
}  // namespace fsdplan
