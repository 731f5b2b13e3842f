#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fsdplan/search.hpp"
#include "planner/evaluation.hpp"

namespace fsdplan {

/// What a search chooses beside the units: each combination is a job.
std::vector<TrainingJob> jobs_to_search(const SearchQuestion& question);

/// Options in which a job differs from another one, as the command line spells them.
std::vector<std::pair<std::string, std::string>> settings_of(const TrainingJob& job, const TrainingJob& base);

/// The space of a search in words.
std::string space_in_words(const SearchQuestion& question);

}  // namespace fsdplan
