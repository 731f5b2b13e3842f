#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fsdplan/decode.hpp"

// What is read from logs. The lines are worded as PyTorch 1.12 to 2.13 word them.
namespace fsdplan {
namespace {

using testing::HasSubstr;

const std::string watchdog = "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(";

std::vector<ObservedCollective> read(const std::string& text) {
    return parse_collectives(text, "train.log");
}

/// "where: message" of the only fault.
std::string fault_of(const std::string& text) {
    try {
        read(text);
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::input);
        EXPECT_EQ(error.faults().size(), 1U);
        return error.faults().front().where + ": " + error.faults().front().message;
    }
    return "accepted";
}

TEST(CollectivesInLog, AWatchdogLineBetweenOthers) {
    const auto found =
        read("step 7\n[rank11]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] " + watchdog +
             "SeqNum=7753, OpType=_REDUCE_SCATTER_BASE, NumelIn=544997376, NumelOut=68124672, "
             "Timeout(ms)=600000) ran for 600061 milliseconds before timing out.\nbye\n");
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].rank, 11);  // in the job; 3 is that in the process group
    EXPECT_EQ(found[0].sequence, 7753);
    EXPECT_EQ(found[0].op, "_REDUCE_SCATTER_BASE");
    EXPECT_EQ(found[0].kind, CollectiveKind::reduce_scatter);
    EXPECT_EQ(found[0].input_numel, 544997376);
    EXPECT_EQ(found[0].output_numel, 68124672);
}

TEST(CollectivesInLog, TheSameLineAgainIsOneCollective) {
    const std::string line =
        watchdog + "SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)";
    EXPECT_EQ(read(line + " ran\n[E] [Rank 3] watchdog thread terminated with exception: " + line).size(),
              1U);
}

TEST(CollectivesInLog, OldLinesAndCoalescedWorkHaveNoSizes) {
    const auto found = read(watchdog + "SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=1800000)\n" + watchdog +
                            "SeqNum=2, OpType=COALESCED, NumelIn=18446744073709551615, "
                            "NumelOut=18446744073709551615, Timeout(ms)=10000)\n");
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].kind, CollectiveKind::all_reduce);
    EXPECT_FALSE(found[0].input_numel.has_value());
    EXPECT_FALSE(found[1].kind.has_value());
    EXPECT_FALSE(found[1].output_numel.has_value());
}

TEST(CollectivesInLog, ProgressOfARankBelongsToItsCollective) {
    // Wordings of 2.5 and of 2.6.
    const auto found =
        read("[rank0]:[E1] " + watchdog + "SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1)\n" +
             "[rank1]:[E1] " + watchdog + "SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1)\n" +
             "[rank0]:[E1] [PG ID 0 PG GUID 0(default_pg) Rank 0] Exception (either an error or timeout) "
             "detected by "
             "watchdog at work: 7, last enqueued NCCL work: 9, last completed NCCL work: 6.\n"
             "[rank1]:[E1] [PG ID 1 PG GUID 5 Rank 1]  failure detected by watchdog at work sequence id: 7 "
             "PG status: "
             "last enqueued work: 8, last completed work: 5\n");
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].group, "0 (default_pg)");
    EXPECT_EQ(found[0].last_enqueued, 9);
    EXPECT_EQ(found[0].last_completed, 6);
    EXPECT_EQ(found[1].group, "1");
    EXPECT_EQ(found[1].last_enqueued, 8);
}

TEST(CollectivesInLog, AMismatchFoundByTheDebugWrapperHasTwoRanks) {
    const auto found = read(
        "[rank1]: RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running "
        "collective: "
        "CollectiveFingerPrint(SequenceNumber=31, OpType=ALLREDUCE, TensorShape=[20, 10], "
        "TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)), but Rank 0 is running "
        "collective: "
        "CollectiveFingerPrint(SequenceNumber=32OpType=REDUCE).");
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].rank, 1);
    EXPECT_EQ(found[0].input_numel, 200);
    EXPECT_FALSE(found[0].output_numel.has_value());
    EXPECT_EQ(found[1].rank, 0);
    EXPECT_EQ(found[1].sequence, 32);
    EXPECT_EQ(found[1].kind, CollectiveKind::reduce);
}

TEST(CollectivesInLog, AFlightRecordersDumpHasTheOldestThatWaits) {
    const auto found = read(R"({"version": "2.10", "rank": 5, "entries": [
        {"process_group": ["0", "default_pg"], "collective_seq_id": 1, "profiling_name": "nccl:all_reduce",
         "input_sizes": [[1]], "output_sizes": [[1]], "state": "completed"},
        {"process_group": ["0", "default_pg"], "collective_seq_id": 2, "profiling_name": "nccl:_all_gather_base",
         "input_sizes": [[4, 25]], "output_sizes": [[400]], "state": "started"},
        {"process_group": ["0", "default_pg"], "collective_seq_id": 3, "profiling_name": "nccl:_all_gather_base",
         "input_sizes": [[7]], "output_sizes": [[28]], "state": "scheduled"}]})");
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].rank, 5);
    EXPECT_EQ(found[0].group, "0 default_pg");
    EXPECT_EQ(found[0].sequence, 2);
    EXPECT_EQ(found[0].kind, CollectiveKind::all_gather);
    EXPECT_EQ(found[0].input_numel, 100);
    EXPECT_EQ(found[0].output_numel, 400);
}

TEST(CollectivesInLog, WhatCannotBeIsRefusedWithItsLine) {
    const std::string begin = "first\n" + watchdog + "SeqNum=1, OpType=ALLREDUCE, ";
    EXPECT_EQ(fault_of(begin + "NumelIn=-4, NumelOut=4)"),
              "train.log:2: NumelIn: expected a number of elements, at most 2^53, found \"-4\"");
    EXPECT_THAT(fault_of(begin + "NumelIn=9007199254740993, NumelOut=4)"), HasSubstr("at most 2^53"));
    EXPECT_THAT(fault_of(begin + "NumelIn=99999999999999999999999, NumelOut=4)"), HasSubstr("at most 2^53"));
    EXPECT_THAT(fault_of(begin + "NumelIn=4x, NumelOut=4)"), HasSubstr("found \"4x\""));
    EXPECT_THAT(fault_of(watchdog + "SeqNum=-1, OpType=ALLREDUCE)"),
                HasSubstr("train.log:1: SeqNum: expected"));
    EXPECT_THAT(fault_of(watchdog + "SeqNum=1, OpType=\xff\xfe)"), HasSubstr("found \"??\""));
    EXPECT_THAT(fault_of("CollectiveFingerPrint(OpType=REDUCE, TensorShape=[3, 4294967296, 4294967296])"),
                HasSubstr("train.log:1"));
}

TEST(CollectivesInLog, MoreThanATimeoutHasIsRefused) {
    std::string text;
    for (int i = 0; i < 10'001; ++i) {
        text += watchdog + "SeqNum=" + std::to_string(i) + ", OpType=ALLREDUCE, NumelIn=1, NumelOut=1)\n";
    }
    EXPECT_EQ(fault_of(text), "train.log: more than 10,000 collectives; give the lines of one timeout");
}

TEST(CollectivesInLog, ALogWithoutAnyIsRefused) {
    for (const char* text : {"", "\n\n", "all is well\n", "[rank0]: done", "[]"}) {
        EXPECT_THAT(fault_of(text), HasSubstr("train.log: no collective found; expected lines such as"))
            << text;
    }
}

TEST(CollectiveKind, IsReadAsTorchSpellsIt) {
    EXPECT_EQ(collective_kind("_ALLGATHER_BASE"), CollectiveKind::all_gather);
    EXPECT_EQ(collective_kind("ALLGATHER_COALESCED"), CollectiveKind::all_gather);
    EXPECT_EQ(collective_kind("nccl:_reduce_scatter_base"), CollectiveKind::reduce_scatter);
    EXPECT_EQ(collective_kind("ALLREDUCE"), CollectiveKind::all_reduce);
    EXPECT_EQ(collective_kind("BROADCAST"), CollectiveKind::broadcast);
    EXPECT_FALSE(collective_kind("COALESCED").has_value());
    EXPECT_FALSE(collective_kind("ALLTOALL_BASE").has_value());
    EXPECT_FALSE(collective_kind("").has_value());
}

ObservedCollective seen(CollectiveKind kind, std::int64_t in, std::int64_t out) {
    return {.op = std::string(name(kind)), .kind = kind, .input_numel = in, .output_numel = out};
}

TEST(SharingRanks, AreTheQuotientOfMostSizes) {
    using enum CollectiveKind;
    EXPECT_EQ(sharing_ranks({seen(all_gather, 25, 100)}), 4);
    EXPECT_EQ(
        sharing_ranks({seen(reduce_scatter, 100, 50), seen(all_gather, 25, 100), seen(all_gather, 3, 12)}),
        4);
    EXPECT_EQ(sharing_ranks({seen(all_reduce, 100, 100)}), std::nullopt);
    EXPECT_EQ(sharing_ranks({seen(all_gather, 3, 100)}), std::nullopt);  // no multiple
    EXPECT_EQ(sharing_ranks({seen(all_gather, 0, 100)}), std::nullopt);
}

ObservedCollective of_rank(std::int64_t rank, std::int64_t sequence, std::int64_t out = 100) {
    ObservedCollective collective = seen(CollectiveKind::all_gather, 25, out);
    collective.rank = rank;
    collective.sequence = sequence;
    return collective;
}

TEST(RankOrder, OneRankCannotTell) {
    EXPECT_FALSE(rank_order({of_rank(0, 7)}).in_step.has_value());
    EXPECT_FALSE(rank_order({of_rank(0, 7), of_rank(0, 9)}).in_step.has_value());
}

TEST(RankOrder, TheSameNumberAndWorkAreInStep) {
    EXPECT_EQ(rank_order({of_rank(0, 7), of_rank(1, 7)}).in_step, true);
}

TEST(RankOrder, OtherWorkUnderOneNumberIsAnotherSequence) {
    const RankOrder order = rank_order({of_rank(0, 7), of_rank(1, 7, 200)});
    EXPECT_EQ(order.in_step, false);
    EXPECT_THAT(order.text, HasSubstr("they issued different sequences of collectives"));
}

TEST(RankOrder, ASmallerNumberIsBehind) {
    const RankOrder order = rank_order({of_rank(0, 7), of_rank(1, 7), of_rank(2, 4)});
    EXPECT_EQ(order.in_step, false);
    EXPECT_THAT(order.text, HasSubstr("rank 2 is 3 behind"));
}

TEST(RankOrder, OnlyTheOldestOfARankCounts) {
    EXPECT_EQ(rank_order({of_rank(0, 9, 200), of_rank(0, 7), of_rank(1, 7)}).in_step, true);
}

TEST(RankOrder, NumbersOfOtherProcessGroupsAreNotCompared) {
    ObservedCollective other = of_rank(1, 4);
    other.group = "1";
    ObservedCollective one = of_rank(0, 7);
    one.group = "0";
    EXPECT_FALSE(rank_order({one, other}).in_step.has_value());
    ObservedCollective same = of_rank(2, 4);
    same.group = "1";
    EXPECT_EQ(rank_order({one, other, same}).in_step, true);
}

}  // namespace
}  // namespace fsdplan
