#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "schedule/zero12.hpp"
#include "schedule/zero3.hpp"

namespace fsdplan::zero {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Parameter> sized(std::initializer_list<std::int64_t> sizes) {
    std::vector<Parameter> parameters;
    for (const std::int64_t size : sizes) {
        parameters.push_back({.numel = size, .created = static_cast<std::int32_t>(parameters.size())});
    }
    return parameters;
}

/// Input elements of the calls made for a purpose.
std::vector<std::int64_t> sent(const std::vector<Event>& events, Purpose purpose) {
    std::vector<std::int64_t> sizes;
    for (const Event& event : events) {
        if (event.kind == Event::Kind::collective && event.purpose == purpose) {
            sizes.push_back(event.call.input_numel);
        }
    }
    return sizes;
}

// ---- stages 0 to 2

TEST(ZeroLayout, PartitionsCutTheBufferRegardlessOfParameters) {
    const std::vector<Parameter> parameters = sized({5, 4, 2});
    const std::vector<FlatGroup> groups = flat_groups(parameters, {{.ranks = 3}, {}});
    ASSERT_EQ(groups.size(), 1U);
    EXPECT_THAT(groups[0].offsets, ElementsAre(0, 5, 9));
    EXPECT_EQ(groups[0].flat_numel, 12);  // 11, up to a multiple of 2 * 3
    EXPECT_EQ(groups[0].partition_numel, 4);
    const Partition second = partition_of(groups[0], parameters, 1);
    EXPECT_THAT(second.parameters, ElementsAre(0, 1));
    EXPECT_EQ(second.first_offset, 4);
    EXPECT_EQ(partition_of(groups[0], parameters, 2).padding, 1);
}

TEST(ZeroLayout, RoundRobinDealsParametersOut) {
    const Options options{{.ranks = 2}, {.round_robin_gradients = true}};
    EXPECT_THAT(flat_groups(sized({1, 2, 3, 4, 5}), options)[0].parameters, ElementsAre(0, 2, 4, 1, 3));
}

TEST(ZeroLayout, AlignedParametersBeginAt16Bytes) {
    Options options{{.dtype = DType::bfloat16, .ranks = 1}, {.parameter_alignment = true}};
    EXPECT_THAT(flat_groups(sized({3, 9, 1}), options)[0].offsets, ElementsAre(0, 8, 24));
    EXPECT_EQ(flat_groups(sized({3, 9, 1}), options)[0].flat_numel, 26);  // none behind the last, then even
    options.dtype = DType::float32;
    EXPECT_THAT(flat_groups(sized({3, 9, 1}), options)[0].offsets, ElementsAre(0, 4, 16));
}

TEST(Zero12, ABucketIsReducedBeforeItWouldOverflow) {
    const std::vector<std::int32_t> ready{2, 1, 0};
    const Options options{{.stage = 2, .ranks = 2}, {.reduce_bucket_size = 10}};
    // 4 + 6 = 10 fit; 5 does not.
    const std::vector<Event> events = zero12_iteration(sized({5, 6, 4}), options, ready);
    EXPECT_THAT(sent(events, Purpose::gradients), ElementsAre(10, 5));
    EXPECT_THAT(sent(events, Purpose::overflow), ElementsAre(1));
    EXPECT_THAT(sent(events, Purpose::updated_parameters), ElementsAre(8));  // 15 -> 16, half
}

TEST(Zero12, StageOneReducesAfterBackwardInTheOptimizersOrder) {
    const std::vector<std::int32_t> ready{2, 1, 0};
    Options options{{.stage = 1, .ranks = 2, .accumulate = 2}, {.reduce_bucket_size = 9}};
    // In the optimizer's order 5, 6, 4: no two fit into 9. As they become ready: 4; 6; 5 alike, but 4 + 5 = 9
    // do when the middle one has no gradient.
    const std::vector<std::int32_t> without_middle{2, 0};
    EXPECT_THAT(sent(zero12_iteration(sized({5, 6, 4}), options, ready), Purpose::gradients),
                ElementsAre(5, 6, 4));
    EXPECT_THAT(sent(zero12_iteration(sized({5, 6, 4}), options, without_middle), Purpose::gradients),
                ElementsAre(9));
    options.overlap_comm = true;
    EXPECT_THAT(sent(zero12_iteration(sized({5, 6, 4}), options, ready), Purpose::gradients),
                ElementsAre(4, 6, 5));
    options.stage = 2;  // in both micro-batches
    EXPECT_THAT(sent(zero12_iteration(sized({5, 6, 4}), options, ready), Purpose::gradients),
                ElementsAre(4, 6, 5, 4, 6, 5));
}

TEST(Zero12, WithoutMultiRankBucketsEachOwnerGetsItsPart) {
    const std::vector<std::int32_t> ready{0, 1};
    const Options options{{.stage = 2, .ranks = 2}, {.use_multi_rank_bucket_allreduce = false}};
    // 4 + 8 = 12: rank 0 owns [0, 6), so the first parameter and 2 elements of the second.
    const std::vector<Event> events = zero12_iteration(sized({4, 8}), options, ready);
    EXPECT_THAT(sent(events, Purpose::gradients), ElementsAre(6, 6));
    EXPECT_EQ(events[0].destination, 0);
    EXPECT_EQ(events[1].destination, 1);
    EXPECT_EQ(events[0].call.kind, CollectiveKind::reduce);
}

TEST(Zero12, AnOversizedParameterIsSentByPartitions) {
    const std::vector<std::int32_t> ready{0};
    const Options options{{.stage = 2, .ranks = 4}, {.reduce_bucket_size = 9}};
    // 40 elements, 10 on each rank: every piece exceeds the bucket size by itself.
    EXPECT_THAT(sent(zero12_iteration(sized({40}), options, ready), Purpose::gradients),
                ElementsAre(10, 10, 10, 10));
}

TEST(Zero12, Bfloat16WithFloat32GradientsReducesThePaddedBuffer) {
    const std::vector<std::int32_t> ready{1, 0};
    const Options options{{.stage = 1, .ranks = 4, .accumulate = 2}, {.float32_accumulation = true}};
    const std::vector<Event> events = zero12_iteration(sized({5, 6}), options, ready);
    EXPECT_THAT(sent(events, Purpose::gradients), ElementsAre(16));  // 11 up to a multiple of 8
    EXPECT_THAT(sent(events, Purpose::norm), IsEmpty());
}

TEST(Zero12, EveryGradientIsReducedOnceAndPartitionsCoverTheBuffer) {
    for (unsigned seed = 0; seed < 300; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const auto below = [&](unsigned n) { return static_cast<std::int64_t>(random() % n); };
        std::vector<Parameter> parameters(1 + random() % 20);
        std::vector<std::int32_t> ready;
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            parameters[i] = {.numel = 1 + below(50), .group = static_cast<std::int32_t>(below(2))};
            ready.push_back(static_cast<std::int32_t>(i));
        }
        std::ranges::shuffle(ready, random);
        const Options options{{.stage = static_cast<int>(below(3)), .ranks = 1 + below(5)},
                              {.reduce_bucket_size = 1 + below(60),
                               .overlap_comm = below(2) == 0,
                               .contiguous_gradients = below(3) != 0,
                               .reduce_scatter = below(3) != 0,
                               .use_multi_rank_bucket_allreduce = below(2) == 0,
                               .round_robin_gradients = below(2) == 0,
                               .parameter_alignment = below(2) == 0}};
        std::int64_t all = 0;
        for (const Parameter& parameter : parameters) {
            all += parameter.numel;
        }
        const std::vector<Event> events = zero12_iteration(parameters, options, ready);
        std::int64_t reduced = 0;
        for (const Event& event : events) {
            if (event.pass == Pass::backward) {
                reduced += event.call.input_numel;
            }
        }
        EXPECT_EQ(reduced, all);
        for (const FlatGroup& group : flat_groups(parameters, options)) {
            EXPECT_EQ(group.partition_numel * options.ranks, group.flat_numel);
            std::map<std::int32_t, int> owners;
            std::int64_t padding = 0;
            for (std::int64_t rank = 0; rank < options.ranks; ++rank) {
                const Partition partition = partition_of(group, parameters, rank);
                padding += partition.padding;
                for (const std::int32_t row : partition.parameters) {
                    ++owners[row];
                }
            }
            EXPECT_EQ(padding, group.flat_numel - group.numel);
            EXPECT_EQ(owners.size(), group.parameters.size());
        }
    }
}

// ---- stage 3

/// Modules 1, 2, … called one after the other by module 0, each with the parameter of its number less one.
struct Chain {
    explicit Chain(std::int32_t length) : modules(static_cast<std::size_t>(length) + 1) {
        const auto visit = [&](std::int32_t m, bool enter, bool backward) {
            micro_batch.hooks.push_back({.module = m, .enter = enter, .backward = backward});
        };
        visit(0, true, false);
        for (std::int32_t m = 1; m <= length; ++m) {
            modules[static_cast<std::size_t>(m)] = {.parameters = {m - 1}, .below = {m - 1}};
            modules[0].below.push_back(m - 1);
            visit(m, true, false);
            visit(m, false, false);
        }
        visit(0, false, false);
        visit(0, true, true);
        for (std::int32_t m = length; m >= 1; --m) {
            ready.push_back(m - 1);
            visit(m, true, true);
            visit(m, false, true);
        }
        visit(0, false, true);
        micro_batch.gradients = place_gradients(modules, micro_batch.hooks, ready);
    }

    std::vector<Module> modules;
    MicroBatch micro_batch;
    std::vector<std::int32_t> ready;
};

TEST(Zero3, LayoutCountsPersistentParametersUpToTheModelsThreshold) {
    const Layout3 layout = layout3(
        sized({10, 100, 20, 15}),
        {{.stage = 3, .ranks = 4}, {.param_persistence_threshold = 20, .model_persistence_threshold = 28}});
    EXPECT_THAT(layout.partition_numel, ElementsAre(3, 25, 5, 4));
    EXPECT_THAT(layout.persistent, ElementsAre(0, 3));  // 10, then 20 would make 30, then 15 makes 25
}

TEST(Zero3, ASubGroupEndsOnceItsPartitionsReachTheSize) {
    const Layout3 layout = layout3(sized({8, 8, 8, 8, 8}), {{.stage = 3, .ranks = 2}, {.sub_group_size = 7}});
    EXPECT_THAT(layout.sub_groups, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
    EXPECT_THAT(layout.sub_group_numel, ElementsAre(8, 8, 4));
}

TEST(Zero3, WithoutPrefetchEachModuleFetchesItsOwnInEachPass) {
    const Chain chain(3);
    const Options options{
        {.stage = 3, .ranks = 2},
        {.prefetch_bucket_size = 0, .max_reuse_distance = 0, .param_persistence_threshold = 0}};
    const auto training = zero3_training(sized({4, 6, 8}), chain.modules, options, chain.micro_batch, 3);
    for (const std::vector<Event>& iteration : training) {
        EXPECT_THAT(sent(iteration, Purpose::fetch), ElementsAre(2, 3, 4, 4, 3, 2));
        EXPECT_THAT(sent(iteration, Purpose::scattered_gradients), ElementsAre(18));
    }
    // Three pairs of broadcasts once the order is known: 8 entries of modules, 6 uses of parameters.
    EXPECT_THAT(sent(training[0], Purpose::trace_list), ElementsAre(0));
    EXPECT_THAT(sent(training[1], Purpose::trace_list), ElementsAre(8, 6, 6));
    EXPECT_THAT(sent(training[2], Purpose::trace_list), IsEmpty());
}

TEST(Zero3, WithRoomEverythingIsGatheredOnceByTheFirstModule) {
    const Chain chain(3);
    const Options options{{.stage = 3, .ranks = 2}, {.param_persistence_threshold = 0}};
    const auto training = zero3_training(sized({4, 6, 8}), chain.modules, options, chain.micro_batch, 3);
    EXPECT_THAT(sent(training[0], Purpose::fetch), ElementsAre(2, 3, 4, 4, 3, 2));
    EXPECT_THAT(sent(training[2], Purpose::fetch), ElementsAre(9));
    EXPECT_TRUE(std::ranges::any_of(training[2], &Event::prefetched));
}

TEST(Zero3, PersistentParametersAreGatheredAfterTheStepInsteadOfInForward) {
    const Chain chain(2);
    const Options options{{.stage = 3, .ranks = 2}, {.param_persistence_threshold = 5}};
    const auto training = zero3_training(sized({4, 6}), chain.modules, options, chain.micro_batch, 2);
    EXPECT_THAT(sent(training[1], Purpose::fetch), ElementsAre(3));
    EXPECT_THAT(sent(training[1], Purpose::persistent_parameters), ElementsAre(2));
}

TEST(Zero3, ALiveLimitKeepsThePrefetcherBack) {
    const Chain chain(4);
    Options options{{.stage = 3, .ranks = 1},
                    {.prefetch_bucket_size = 10,
                     .max_live_parameters = 20,
                     .max_reuse_distance = 0,
                     .param_persistence_threshold = 0}};
    Coordinator coordinator(sized({10, 10, 10, 10}), chain.modules, options);
    std::vector<Event> out;
    for (int pass = 0; pass < 4; ++pass) {
        coordinator.begin_forward(out);
        for (const Hook& hook : chain.micro_batch.hooks) {
            coordinator.hook(hook, out);
            EXPECT_LE(coordinator.live_numel(), 20);
        }
        coordinator.end_backward();
        coordinator.partition_all();
        EXPECT_EQ(coordinator.live_numel(), 0);
    }
}

TEST(Zero3, GradientsStandWithinTheirModulesBackward) {
    const Chain chain(2);
    // Hooks: 0+ 1+ 1- 2+ 2- 0- | 0+ 2+ 2- 1+ 1- 0-: number 8 ends module 2's backward, number 10 module 1's.
    ASSERT_EQ(chain.micro_batch.gradients.size(), 2U);
    EXPECT_EQ(chain.micro_batch.gradients[0].hook, 8U);
    EXPECT_EQ(chain.micro_batch.gradients[0].parameter, 1);
    EXPECT_EQ(chain.micro_batch.gradients[1].hook, 10U);
}

TEST(Zero3, AnExternalParameterIsFetchedWithItsReaderFromTheSecondPassOn) {
    Chain chain(2);
    // Module 0 reads the parameter of module 2 just before it calls it (hook 3).
    chain.micro_batch.reads = {{.hook = 3, .reader = 0, .parameter = 1}};
    const Options options{
        {.stage = 3, .ranks = 2},
        {.prefetch_bucket_size = 0, .max_reuse_distance = 0, .param_persistence_threshold = 0}};
    const auto training = zero3_training(sized({4, 6}), chain.modules, options, chain.micro_batch, 2);
    EXPECT_THAT(sent(training[0], Purpose::external_parameter), ElementsAre(3));
    EXPECT_THAT(sent(training[1], Purpose::external_parameter), IsEmpty());
    EXPECT_EQ(training[1][6].purpose, Purpose::fetch);  // after three pairs of broadcasts
    EXPECT_EQ(training[1][6].module, 0);
    EXPECT_THAT(training[1][6].parameters, ElementsAre(1));
}

TEST(Zero3, RandomChainsGatherBeforeUseAndReduceEachGradientOnce) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const auto below = [&](unsigned n) { return static_cast<std::int64_t>(random() % n); };
        const Chain chain(static_cast<std::int32_t>(1 + below(8)));
        std::vector<Parameter> parameters(chain.ready.size());
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            parameters[i] = {.numel = 1 + below(40), .created = static_cast<std::int32_t>(i)};
        }
        const Options options{{.stage = 3, .ranks = 2 + below(4), .accumulate = 1 + below(3)},
                              {.reduce_bucket_size = 1 + below(60),
                               .contiguous_gradients = below(2) == 0,
                               .reduce_scatter = below(2) == 0,
                               .prefetch_bucket_size = below(80),
                               .max_live_parameters = 10 + below(100),
                               .max_reuse_distance = below(100),
                               .param_persistence_threshold = below(20)}};
        const auto training = zero3_training(parameters, chain.modules, options, chain.micro_batch, 4);
        for (const std::vector<Event>& iteration : training) {
            std::map<std::int32_t, std::int64_t> reduced;
            for (const Event& event : iteration) {
                const bool gradients = event.purpose == Purpose::scattered_gradients ||
                                       event.purpose == Purpose::undivided_gradients;
                if (event.kind == Event::Kind::collective && gradients) {
                    for (const std::int32_t row : event.parameters) {
                        ++reduced[row];
                    }
                }
                EXPECT_TRUE(std::ranges::is_sorted(event.parameters) || gradients);
            }
            EXPECT_EQ(reduced.size(), parameters.size());
            for (const auto& [row, times] : reduced) {
                EXPECT_EQ(times, options.accumulate);
            }
        }
        EXPECT_EQ(training[2], training[3]);  // nothing changes any more
    }
}

}  // namespace
}  // namespace fsdplan::zero
