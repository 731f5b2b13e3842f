#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "planner/search/explore.hpp"

namespace fsdplan {

/// What a search knows when it ends. Everything outlives it.
struct SearchOutcome {
    const SearchQuestion& question;
    const ModelFacts& facts;
    const Space& space;
    const std::vector<std::unique_ptr<Setting>>& settings;
    const Exploration& exploration;
    std::optional<Found> chosen;  ///< the best that fits
    double bound_cost = 0.0;      ///< no plan costs less
    SearchProof proof;            ///< but for the bound and the gap, which are the recommended plan's
};

/// The chosen plan in full, with what is shown beside it.
SearchResult answer_of(const SearchOutcome& outcome);

}  // namespace fsdplan
