#include "fsdplan/compatibility.hpp"

#include <gtest/gtest.h>

namespace fsdplan {
namespace {

/// Two parameters of FSDP2 whose rows divide evenly by two ranks.
CheckpointSide even_rows(std::int64_t ranks) {
    CheckpointSide side;
    side.layout.runtime = StateRuntime::fsdp2;
    side.layout.mesh = {.replicate = 1, .shard = ranks};
    side.layout.sharded = true;
    side.layout.device_mesh = true;
    side.layout.tensors = {{.shape = {8, 8}}, {.shape = {8}}};
    side.layout.entries = {{"weight", 0}, {"bias", 1}};
    side.layout.optimizer = optimizer_states({});
    return side;
}

Compatibility load(const CheckpointSide& from, const char* save, const CheckpointSide& to, const char* how) {
    return compatibility(from, *find_save_route(save), to, *find_load_route(how));
}

// Recorded by the specification on an 8 x 8 layer with 2 ranks: the second half became a copy of the first.
TEST(Compatibility, EvenRowsOfRank0AreTakenByEveryRankWithoutAWord) {
    const Compatibility found = load(even_rows(2), "naive_rank0", even_rows(2), "naive_full");
    EXPECT_EQ(found.outcome, Outcome::silent);
    EXPECT_EQ(found.model_wrong, 2);
    EXPECT_EQ(found.optimizer_wrong, 4) << "two moments of each";
}

TEST(Compatibility, DcpFitsAnyNumberOfRanks) {
    for (const std::int64_t ranks : {1, 3, 48}) {
        EXPECT_EQ(load(even_rows(2), "dsd_dcp", even_rows(ranks), "dsd_dcp").outcome, Outcome::ok);
    }
}

TEST(Compatibility, PickledPiecesWantTheirMesh) {
    const CheckpointSide to = even_rows(3);
    const Compatibility found = load(even_rows(2), "naive_rank", to, "naive_rank");
    EXPECT_EQ(found.outcome, Outcome::error);
    EXPECT_EQ(found.error_class, "RuntimeError");
    EXPECT_EQ(found.code, "module_load:copy");
    EXPECT_EQ(found.ranks, (std::vector<std::int64_t>{0, 1, 2}));
    const std::string way = remedy(found, even_rows(2), *find_save_route("naive_rank"), to);
    EXPECT_NE(way.find("2 ranks"), std::string::npos) << way;
}

TEST(Compatibility, WhatDiffersHasARemedyAndWhatDoesNotHasNone) {
    for (const SaveRoute& save : save_routes()) {
        for (const LoadRoute& load : load_routes()) {
            const CheckpointSide from = even_rows(2);
            const CheckpointSide to = even_rows(4);
            const Compatibility found = compatibility(from, save, to, load);
            EXPECT_EQ(remedy(found, from, save, to).empty(), found.outcome == Outcome::ok)
                << save.name << " " << load.name;
            EXPECT_EQ(found.reason.empty(), found.code.empty())
                << save.name << " " << load.name << " " << found.code;
        }
    }
}

TEST(ExplainMismatch, TellsRowsFromFlatShards) {
    const std::vector<std::int64_t> whole{10, 4};
    EXPECT_EQ(explain_mismatch(whole, std::vector<std::int64_t>{3, 4}).current, "rows of one rank");
    EXPECT_EQ(explain_mismatch(whole, std::vector<std::int64_t>{3, 4}).ranks, 4) << "3 + 3 + 3 + 1";
    EXPECT_EQ(explain_mismatch(std::vector<std::int64_t>{20}, whole).saved, "flat local shard");
    EXPECT_EQ(explain_mismatch(whole, std::vector<std::int64_t>{7, 5}).ranks, 0);
    EXPECT_TRUE(explain_mismatch(whole, whole).remedy.empty());
}

}  // namespace
}  // namespace fsdplan
