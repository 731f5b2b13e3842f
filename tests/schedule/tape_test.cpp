#include "schedule/tape.hpp"

#include <gtest/gtest.h>

#include <string>

namespace fsdplan {
namespace {

using Kind = Tape::Kind;

/// Writes down what runs, by subject.
struct Log {
    const Tape& tape;
    std::string text{};
    void hook(const Tape::Hook& hook) { text += "h" + std::to_string(hook.subject) + " "; }
    void run(std::int32_t node) { text += std::to_string(tape.node(node).subject) + " "; }
};

std::string order(Tape& tape, std::int32_t root) {
    Log log{.tape = tape};
    tape.backward(root, log);
    return log.text;
}

TEST(Tape, AChainRunsBackwards) {
    Tape tape;
    const std::int32_t a = tape.add(Kind::compute, 1);
    const std::int32_t b = tape.add(Kind::compute, 2);
    const std::int32_t root = tape.add(Kind::root, 3);
    tape.edge(b, a);
    tape.edge(root, b);
    EXPECT_EQ(order(tape, root), "3 2 1 ");
}

// 1 and 2 feed 3 on their own: the younger one runs first, however late its edge was made.
TEST(Tape, OfReadyNodesTheYoungestRuns) {
    Tape tape;
    const std::int32_t a = tape.add(Kind::compute, 1);
    const std::int32_t b = tape.add(Kind::compute, 2);
    const std::int32_t root = tape.add(Kind::root, 3);
    tape.edge(root, b);
    tape.edge(root, a);
    EXPECT_EQ(order(tape, root), "3 2 1 ");
}

TEST(Tape, ANodeWaitsForAllItsConsumers) {
    Tape tape;
    const std::int32_t shared = tape.add(Kind::compute, 1);
    const std::int32_t early = tape.add(Kind::compute, 2);
    const std::int32_t late = tape.add(Kind::compute, 3);
    const std::int32_t root = tape.add(Kind::root, 4);
    tape.edge(early, shared);
    tape.edge(late, shared);
    tape.edge(root, early);
    tape.edge(root, late);
    EXPECT_EQ(order(tape, root), "4 3 2 1 ");
}

// The leaf was made first, and still its gradient is accumulated before older computations go on.
TEST(Tape, AccumulationComesAtOnce) {
    Tape tape;
    const std::int32_t leaf = tape.add(Kind::accumulate, 9);
    const std::int32_t a = tape.add(Kind::compute, 1);
    const std::int32_t b = tape.add(Kind::compute, 2);
    const std::int32_t root = tape.add(Kind::root, 3);
    tape.edge(root, b);
    tape.edge(b, a);
    tape.edge(b, leaf);
    EXPECT_EQ(order(tape, root), "3 2 9 1 ");
}

TEST(Tape, WhatTheRootDoesNotReachNeitherRunsNorHolds) {
    Tape tape;
    const std::int32_t a = tape.add(Kind::compute, 1);
    const std::int32_t dropped = tape.add(Kind::compute, 2);
    const std::int32_t root = tape.add(Kind::root, 3);
    tape.edge(dropped, a);
    tape.edge(root, a);
    EXPECT_EQ(order(tape, root), "3 1 ");
    EXPECT_TRUE(tape.reaches(dropped, a));
    EXPECT_FALSE(tape.reaches(a, dropped));
}

TEST(Tape, HooksRunJustBeforeTheirNodeInOrder) {
    Tape tape;
    const std::int32_t a = tape.add(Kind::output, 1);
    const std::int32_t root = tape.add(Kind::root, 2);
    tape.edge(root, a);
    tape.hook(a, 0, 7);
    tape.hook(a, 0, 8);
    EXPECT_EQ(order(tape, root), "2 h7 h8 1 ");
}

}  // namespace
}  // namespace fsdplan
