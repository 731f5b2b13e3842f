#include "execute/streams.hpp"

#include <gtest/gtest.h>

#include <atomic>

namespace fsdplan {
namespace {

TEST(StreamThreads, AreFirstInFirstOutAndWaitForEvents) {
    StreamThreads streams;
    streams.reset(4);
    std::vector<int> order;
    std::atomic<bool> gathered = false;
    streams.issue(Stream::gather, {.op = 0, .work = [&] { gathered = true; }});
    streams.issue(Stream::compute, {.op = 1, .after = 0});
    streams.issue(Stream::compute, {.op = 2, .work = [&] { order.push_back(gathered ? 1 : -1); }});
    streams.issue(Stream::compute, {.op = 3, .work = [&] { order.push_back(2); }});
    streams.finish();
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
    EXPECT_EQ(streams.done(Stream::compute), 3);
    EXPECT_EQ(streams.done(Stream::reduce), 0);
    EXPECT_GE(streams.span(2).start_ns, streams.span(1).end_ns);
    EXPECT_GE(streams.span(1).end_ns, streams.span(0).end_ns);
}

TEST(StreamThreads, TheHostWaitsForWhatItBlocksOn) {
    StreamThreads streams;
    streams.reset(1);
    std::atomic<bool> done = false;
    streams.issue(Stream::compute, {.op = 0, .work = [&] { done = true; }});
    streams.wait_for(0);
    EXPECT_TRUE(done);
}

TEST(StreamThreads, AfterAFailureNobodyWaitsAndNothingMoreIsDone) {
    StreamThreads streams;
    streams.reset(4);
    std::atomic<bool> more = false;
    streams.issue(Stream::reduce, {.op = 0, .work = [] {
                                       throw Error(ErrorKind::machine, "MPI_Allreduce", "is out of order");
                                   }});
    streams.issue(Stream::reduce, {.op = 1, .work = [&] { more = true; }});
    streams.issue(Stream::compute, {.op = 2, .after = 1});
    EXPECT_THROW(streams.finish(), Error);
    EXPECT_THROW(streams.wait_for(3), Error);
    EXPECT_FALSE(more);
}

TEST(StreamThreads, StartAnew) {
    StreamThreads streams;
    for (int pass = 0; pass < 3; ++pass) {
        streams.reset(1);
        EXPECT_EQ(streams.done(Stream::compute), 0);
        streams.issue(Stream::compute, {.op = 0, .work = [] {}});
        streams.finish();
        EXPECT_EQ(streams.done(Stream::compute), 1);
    }
}

}  // namespace
}  // namespace fsdplan
