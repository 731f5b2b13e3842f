#include "schedule/ddp_buckets.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace fsdplan::ddp {
namespace {

using ::testing::ElementsAre;

std::vector<std::vector<std::int32_t>> contents(const std::vector<Bucket>& buckets) {
    std::vector<std::vector<std::int32_t>> rows;
    for (const Bucket& bucket : buckets) {
        rows.push_back(bucket.parameters);
    }
    return rows;
}

/// The collectives of an iteration: elements of the gradients' all-reduces, 0 for anything else.
std::vector<std::int64_t> reductions(const std::vector<Event>& events) {
    std::vector<std::int64_t> sizes;
    for (const Event& event : events) {
        if (event.bucket >= 0) {
            sizes.push_back(event.call.input_numel);
        }
    }
    return sizes;
}

std::vector<std::int32_t> backwards(std::size_t count) {
    std::vector<std::int32_t> order;
    for (std::size_t i = count; i-- > 0;) {
        order.push_back(static_cast<std::int32_t>(i));
    }
    return order;
}

TEST(DdpBuckets, ABucketIsClosedOnceItHoldsItsLimit) {
    const std::vector<Parameter> parameters{{.numel = 10}, {.numel = 10}, {.numel = 30}, {.numel = 5}};
    const std::vector<std::int32_t> order{0, 1, 2, 3};
    // 40 and 80 bytes of at most 60: closed with the second. 120 of at most 100: at once. 20 are left over.
    const std::vector<std::int64_t> limits{60, 100};
    const std::vector<Bucket> buckets = assign_buckets(parameters, order, limits);
    EXPECT_THAT(contents(buckets), ElementsAre(ElementsAre(0, 1), ElementsAre(2), ElementsAre(3)));
    EXPECT_EQ(buckets[0].numel, 20);
    // Exactly full is full: 40 bytes of 40.
    const std::vector<std::int64_t> exact{40};
    EXPECT_THAT(contents(assign_buckets(parameters, order, exact)),
                ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
}

TEST(DdpBuckets, EachDtypeHasItsOwnBucketAndWhatIsLeftComesLastDtypeFirst) {
    const std::vector<Parameter> parameters{
        {.dtype = DType::float32, .numel = 1}, {.dtype = DType::bfloat16, .numel = 2}, {.numel = 4}};
    const std::vector<std::int32_t> order{0, 1, 2};
    EXPECT_THAT(contents(assign_buckets(parameters, order, std::span(&no_limit, 1))),
                ElementsAre(ElementsAre(1), ElementsAre(0, 2)));
}

TEST(DdpBuckets, ASparseGradientTravelsAlone) {
    const std::vector<Parameter> parameters{{.numel = 1}, {.numel = 2, .sparse = true}, {.numel = 4}};
    EXPECT_THAT(contents(initial_buckets(parameters, {})), ElementsAre(ElementsAre(1), ElementsAre(0, 2)));
}

TEST(DdpBuckets, TheFirstIterationSendsEverythingAtOnceAndLaterOnesDoNot) {
    // 4 MiB each in float32: the first bucket of at most 1 MiB holds the gradient that is ready first, the
    // next of at most 25 MiB all others (20 MiB).
    const std::vector<Parameter> parameters(6, {.numel = 1 << 20});
    const Training training = train(parameters, {}, {.ranks = 4}, backwards(6), 3);
    EXPECT_THAT(reductions(training.iterations[0]), ElementsAre(6 << 20));
    EXPECT_THAT(reductions(training.iterations[1]), ElementsAre(1 << 20, 5 << 20));
    EXPECT_THAT(reductions(training.iterations[2]), ElementsAre(1 << 20, 5 << 20));
}

TEST(DdpBuckets, AGivenCapIsTheFirstBucketsToo) {
    const std::vector<Parameter> parameters(6, {.numel = 1 << 20});
    const Options options{.bucket_cap_bytes = 25 << 20};
    const Training training = train(parameters, {}, options, backwards(6), 2);
    EXPECT_THAT(reductions(training.iterations[1]), ElementsAre(6 << 20));
}

TEST(DdpBuckets, AStaticGraphRebuildsAnIterationLater) {
    const std::vector<Parameter> parameters(6, {.numel = 1 << 20});
    const Options options{.static_graph = true};
    const Training training = train(parameters, {}, options, backwards(6), 3);
    EXPECT_THAT(reductions(training.iterations[1]), ElementsAre(6 << 20));
    EXPECT_THAT(reductions(training.iterations[2]), ElementsAre(1 << 20, 5 << 20));
}

TEST(DdpBuckets, AnUnusedParameterStopsTheSecondForward) {
    const std::vector<Parameter> parameters(3, {.numel = 8});
    const std::vector<std::int32_t> ready{2, 0};
    const Training training = train(parameters, {}, {}, ready, 5);
    ASSERT_TRUE(training.refusal);
    EXPECT_EQ(training.refusal->iteration, 1);
    EXPECT_EQ(training.refusal->reason, Refusal::Reason::unfinished);
    EXPECT_THAT(reductions(training.iterations[0]), ElementsAre());

    const Training found = train(parameters, {}, {.find_unused_parameters = true}, ready, 2);
    EXPECT_FALSE(found.refusal);
    EXPECT_THAT(reductions(found.iterations[0]), ElementsAre(24));  // with zeros for the unused one
    EXPECT_EQ(found.iterations[0].back().kind, Event::Kind::backward_end);
    EXPECT_EQ(found.iterations[0].end()[-2].call.dtype, DType::int32);  // which of the 3 were used
    EXPECT_EQ(found.iterations[0].end()[-2].call.input_numel, 3);
}

TEST(DdpBuckets, NothingIsSentUnderNoSync) {
    const std::vector<Parameter> parameters(2, {.numel = 8});
    const Options options{.accumulate = 3};
    const Training training = train(parameters, {}, options, backwards(2), 1);
    EXPECT_THAT(reductions(training.iterations[0]), ElementsAre(16));
    EXPECT_EQ(std::ranges::count(training.iterations[0], Event::Kind::forward_begin, &Event::kind), 3);
}

TEST(DdpBuckets, ConstructionSendsFrozenParametersAndBuffersButNoIgnoredOnes) {
    const std::vector<Parameter> parameters{
        {.numel = 5}, {.numel = 7, .trainable = false}, {.numel = 100, .ignored = true}};
    const std::vector<ModuleBuffer> buffers{{.dtype = DType::int64, .numel = 1}, {.numel = 3}};
    const std::vector<CollectiveCall> calls = construction(parameters, buffers, {.shape_numbers = 4});
    ASSERT_EQ(calls.size(), 4U);
    EXPECT_EQ(calls[1].input_numel, 4);
    EXPECT_EQ(calls[2].input_numel, 15);  // float32: 5 + 7 + 3
    EXPECT_EQ(calls[3].dtype, DType::int64);
}

TEST(DdpBuckets, BucketsPartitionTheReducedParametersAndKeepTheirOrder) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const auto below = [&](unsigned n) { return static_cast<std::int64_t>(random() % n); };
        std::vector<Parameter> parameters(1 + random() % 30);
        for (Parameter& parameter : parameters) {
            parameter = {.dtype = below(3) == 0 ? DType::bfloat16 : DType::float32,
                         .numel = below(1000),
                         .trainable = below(5) != 0,
                         .ignored = below(8) == 0,
                         .sparse = below(9) == 0};
        }
        Options options{.find_unused_parameters = below(2) == 0, .static_graph = below(2) == 0};
        if (below(2) == 0) {
            options.bucket_cap_bytes = below(4000);
        }
        std::vector<std::int32_t> ready = reduced_parameters(parameters);
        std::ranges::shuffle(ready, random);
        for (const std::vector<Bucket>& buckets :
             {initial_buckets(parameters, options), rebuilt_buckets(parameters, options, ready)}) {
            std::multiset<std::int32_t> rows;
            for (const Bucket& bucket : buckets) {
                std::int64_t numel = 0;
                for (const std::int32_t row : bucket.parameters) {
                    rows.insert(row);
                    numel += parameters[static_cast<std::size_t>(row)].numel;
                    EXPECT_EQ(parameters[static_cast<std::size_t>(row)].dtype, bucket.dtype);
                }
                EXPECT_EQ(numel, bucket.numel);
            }
            const std::vector<std::int32_t> reduced = reduced_parameters(parameters);
            EXPECT_EQ(rows, std::multiset<std::int32_t>(reduced.begin(), reduced.end()));
        }
        // Within a bucket gradients stand in the order in which they become ready.
        for (const Bucket& bucket : rebuilt_buckets(parameters, options, ready)) {
            std::vector<std::ptrdiff_t> places;
            for (const std::int32_t row : bucket.parameters) {
                places.push_back(std::ranges::find(ready, row) - ready.begin());
            }
            EXPECT_TRUE(std::ranges::is_sorted(places));
        }
        // Every iteration reduces every element once, whatever the order.
        const Training training = train(parameters, {}, options, ready, 4);
        ASSERT_FALSE(training.refusal);
        std::int64_t all = 0;
        for (const std::int32_t row : ready) {
            all += parameters[static_cast<std::size_t>(row)].numel;
        }
        for (const std::vector<Event>& iteration : training.iterations) {
            std::int64_t sent = 0;
            for (const std::int64_t size : reductions(iteration)) {
                sent += size;
            }
            EXPECT_EQ(sent, all);
        }
    }
}

}  // namespace
}  // namespace fsdplan::ddp
