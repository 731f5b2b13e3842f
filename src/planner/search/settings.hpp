#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fsdplan/search.hpp"
#include "planner/evaluation.hpp"

namespace fsdplan {

/// What a search chooses beside the units: each combination is a job.
std::vector<TrainingJob> jobs_to_search(const SearchQuestion& question);

/// Numbers of checkpointed blocks between those of two jobs that differ in nothing else.
struct CheckpointRange {
    std::size_t fewer = 0;  ///< row of the job
    std::size_t more = 0;
    std::size_t fewer_blocks = 0;
    std::size_t more_blocks = 0;

    std::size_t numbers() const { return more_blocks - fewer_blocks - 1; }
};
/// What jobs_to_search() leaves out; none is empty.
std::vector<CheckpointRange> checkpoint_ranges(const std::vector<TrainingJob>& jobs, const ModuleTree& tree);
/// The job with the first `blocks` checkpointed.
TrainingJob with_checkpointed(const TrainingJob& job, const ModuleTree& tree, std::size_t blocks);

/// Options in which a job differs from another one, as the command line spells them.
std::vector<std::pair<std::string, std::string>> settings_of(const TrainingJob& job, const TrainingJob& base);

/// The space of a search in words.
std::string space_in_words(const SearchQuestion& question);

}  // namespace fsdplan
