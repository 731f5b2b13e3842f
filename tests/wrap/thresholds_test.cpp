#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fsdplan/wrap.hpp"
#include "support/random_tree.hpp"

// The enumeration of thresholds against the result at every single threshold.
namespace fsdplan {
namespace {

using testing::random_tree;
using testing::RandomTreeFeatures;

PolicySpec size_policy(std::optional<double> min_num_params = {}) {
    PolicySpec spec;
    spec.kind = PolicySpec::Kind::recursive;
    spec.members.push_back({.name = "size", .min_num_params = min_num_params});
    return spec;
}

/// Units, or the error where the order of construction cannot go on.
std::string result_of(const WrapPlan& plan) {
    if (!plan.complete) {
        return std::string(name(plan.construction_error()->rule));
    }
    std::string out;
    for (const Unit& unit : plan.units) {
        out += unit.path + " ";
    }
    return out;
}

void expect_every_threshold_in_its_interval(const ModuleTree& tree, const WrapOptions& options) {
    const std::vector<ThresholdInterval> intervals = thresholds(tree, size_policy(), options);
    ASSERT_FALSE(intervals.empty());
    EXPECT_FALSE(intervals.front().high.has_value());
    EXPECT_EQ(intervals.back().low, 0);
    for (std::int64_t t = 0; t <= tree.numel[0] + 2; ++t) {
        const auto holds = std::ranges::find_if(
            intervals, [t](const ThresholdInterval& i) { return i.low <= t && t <= i.high.value_or(t); });
        ASSERT_NE(holds, intervals.end()) << "no interval holds " << t;
        const WrapPlan plan = wrap(tree, size_policy(static_cast<double>(t)), options);
        ASSERT_EQ(result_of(holds->plan), result_of(plan)) << "at threshold " << t;
    }
    for (std::size_t i = 1; i < intervals.size(); ++i) {
        EXPECT_EQ(intervals[i].high.value() + 1, intervals[i - 1].low);
        EXPECT_NE(result_of(intervals[i].plan), result_of(intervals[i - 1].plan)) << "interval " << i;
    }
}

TEST(Thresholds, EveryValueLiesInTheIntervalWithItsResult) {
    for (unsigned seed = 0; seed < 60; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        expect_every_threshold_in_its_interval(random_tree(seed, {}), {});
    }
}

TEST(Thresholds, TheSameWithTiedParametersInBothModes) {
    for (unsigned seed = 0; seed < 60; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const ModuleTree tree = random_tree(seed, RandomTreeFeatures{.tied_parameters = true});
        expect_every_threshold_in_its_interval(tree, {});
        expect_every_threshold_in_its_interval(tree, {.use_orig_params = true, .world_size = 4, .rank = 2});
    }
}

TEST(Thresholds, TheSameWithSharedModulesInBothModes) {
    for (unsigned seed = 0; seed < 60; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const ModuleTree tree = random_tree(seed, {.shared_modules = true, .tied_parameters = true});
        expect_every_threshold_in_its_interval(tree, {.world_size = 3});
        expect_every_threshold_in_its_interval(tree, {.use_orig_params = true, .world_size = 3, .rank = 1});
    }
}

TEST(Thresholds, IgnoredModulesAndFullPrecisionClassesTakePart) {
    for (unsigned seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const ModuleTree tree = random_tree(seed, {});
        WrapOptions options;
        if (tree.size() > 2) {
            options.ignored_modules = {tree.path(ModuleIndex{static_cast<std::int32_t>(tree.size() / 2)})};
        }
        options.mixed_precision = true;
        options.keep_full_precision = {{"toy.Block"}};
        expect_every_threshold_in_its_interval(tree, options);
    }
}

// The fast evaluator decides equal subtrees once; the recursion visits every module.
TEST(SizeBoundaries, AgreesWithTheRecursion) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const ModuleTree tree = random_tree(seed, {.tied_parameters = seed % 2 == 1, .most_rows = 80});
        const std::vector<ThresholdInterval> slow = thresholds(tree, size_policy(), {});
        const std::vector<SizeBoundaries::Interval> fast = SizeBoundaries(tree).all();
        ASSERT_EQ(fast.size(), slow.size());
        for (std::size_t i = 0; i < fast.size(); ++i) {
            EXPECT_EQ(fast[i].low, slow[i].low);
            EXPECT_EQ(fast[i].high, slow[i].high);
            std::vector<ModuleIndex> wrapped;
            for (const Unit& unit : slow[i].plan.units) {
                if (unit.module != ModuleIndex{}) {
                    wrapped.push_back(unit.module);
                }
            }
            EXPECT_EQ(fast[i].wrapped, wrapped);
        }
    }
}

// A parameter of 50 with a child of 100 under the root: raising the threshold from 100 to 150 moves the unit
// up.
TEST(Thresholds, ALargerThresholdCanMakeNewUnits) {
    GraphBuilder builder("chain", "hand");
    const ModuleClass plain{"toy.Block", {"torch.nn.modules.module.Module"}};
    const Scope middle = builder.root(plain).child("a", plain);
    middle.parameter("w", {50});
    middle.child("b", plain).parameter("w", {100});
    const ModuleTree tree = flatten(builder.finish());
    const std::vector<ThresholdInterval> intervals = thresholds(tree, size_policy(), {});
    ASSERT_EQ(intervals.size(), 4U);
    EXPECT_EQ(result_of(intervals[0].plan), " ");        // from 151
    EXPECT_EQ(result_of(intervals[1].plan), " a ");      // 101 to 150
    EXPECT_EQ(result_of(intervals[2].plan), " a.b ");    // 51 to 100
    EXPECT_EQ(result_of(intervals[3].plan), " a a.b ");  // 0 to 50
    EXPECT_EQ(intervals[2].low, 51);
}

// Chains of shared modules have 2^30 paths; every module is still visited about once.
TEST(Recursion, ChainsOfSharedModulesDoNotExplode) {
    GraphBuilder builder("chain", "hand");
    const ModuleClass plain{"toy.Block", {"torch.nn.modules.module.Module"}};
    Scope level = builder.root(plain);
    for (int i = 0; i < 30; ++i) {
        const Scope left = level.child("left", plain);
        const Scope right = level.child("right", plain);
        const Scope next = left.child("next", plain);
        right.share("next", next);
        level = next;
    }
    level.parameter("w", {100});
    const ModuleTree tree = flatten(builder.finish());
    EXPECT_EQ(tree.numel[0], 100);
    EXPECT_EQ(wrap(tree, size_policy(101), {}).units.size(), 1U);
    PolicySpec nothing_matches;
    nothing_matches.kind = PolicySpec::Kind::recursive;
    nothing_matches.members.push_back({.name = "transformer", .classes = {"Absent"}});
    EXPECT_EQ(wrap(tree, nothing_matches, {}).units.size(), 1U);
}

}  // namespace
}  // namespace fsdplan
