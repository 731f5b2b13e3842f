#pragma once

#include "fsdplan/checkpoint.hpp"

namespace fsdplan {

/// dcp_save() without its files: what a plan for thousands of ranks needs.
struct DcpTotals {
    std::int64_t bytes = 0;               ///< of all .distcp files, exact
    std::int64_t largest_rank_bytes = 0;  ///< about: replicated pieces are shared out evenly
    std::int64_t metadata_bytes = 0;      ///< about
    std::int64_t plan_bytes = 0;          ///< pickled plans that rank 0 takes in; about
};

/// Each tensor has at most three kinds of pieces: those of most ranks, a short one, and empty ones.
DcpTotals dcp_totals(const StateLayout& layout, bool with_optimizer);

}  // namespace fsdplan
