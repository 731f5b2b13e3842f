#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "planner/search/explore.hpp"
#include "planner/search/settings.hpp"
#include "planner/training_schedule.hpp"

namespace fsdplan {

/// The settings of a search: those of jobs_to_search(), and one after the other from the ranges between them.
class SettingTable {
public:
    /// Both must outlive it.
    SettingTable(const SearchQuestion& question, const ModelFacts& facts);

    const Space& space() const { return space_; }
    const std::vector<std::unique_ptr<Setting>>& settings() const { return settings_; }
    std::size_t size() const { return settings_.size(); }
    Setting& operator[](std::size_t setting) const { return *settings_[setting]; }

    const std::vector<CheckpointRange>& ranges() const { return ranges_; }
    /// The least that a number of checkpointed blocks within the range can cost: each block more takes time
    /// for memory, so that none takes less time than `fewer` or leaves more memory than `more`.
    double least_cost(const CheckpointRange& range, std::int64_t limit_bytes) const;
    /// How much of the time of a step the numbers in the range differ by at most.
    double width(const CheckpointRange& range) const;
    /// Makes the middle of a range a setting and returns which.
    std::size_t halve(std::size_t range);

private:
    std::size_t evaluated_like(const TrainingJob& job);

    const SearchQuestion& question_;
    const ModelFacts& facts_;
    Space space_;
    std::vector<Workload> workloads_;
    std::vector<Evaluation> evaluations_;  // of each
    std::vector<std::unique_ptr<Setting>> settings_;
    std::vector<CheckpointRange> ranges_;  // none of whose numbers is a setting
};

}  // namespace fsdplan
