#include "planner/search/setting_table.hpp"

#include <algorithm>
#include <limits>

#include "planner/search/in_parallel.hpp"

namespace fsdplan {
namespace {

/// By row: whether forward calls the module or one below it; empty when that is not known.
std::vector<char> called_rows(const ForwardCalls& calls, const ModuleTree& tree) {
    if (calls.empty()) {
        return {};
    }
    std::vector<char> called(tree.size(), 0);
    for (const ModuleIndex m : calls.module) {
        for (auto row = static_cast<std::int32_t>(at(m)); row >= 0;
             row = tree.parent[static_cast<std::size_t>(row)]) {
            called[static_cast<std::size_t>(row)] = 1;
        }
    }
    return called;
}

}  // namespace

SettingTable::SettingTable(const SearchQuestion& question, const ModelFacts& facts)
    : question_(question), facts_(facts) {
    const std::vector<TrainingJob> jobs = jobs_to_search(question_);
    const ModuleTree& tree = question_.question.tree;
    const RuntimeInfo& info = runtime(jobs.front().runtime);
    std::vector<std::size_t> like;
    for (const TrainingJob& job : jobs) {
        like.push_back(evaluated_like(job));
    }
    if (question_.free.units && info.has_units) {
        const ForwardCalls& recorded = evaluations_.front().operators.calls;
        space_ = space_of(tree, {.fold = question_.fold,
                                 .reshard = question_.free.reshard && !info.wraps_by_policy,
                                 .groups = question_.fold && !info.wraps_by_policy,
                                 .called = called_rows(recorded.empty() ? tree.calls : recorded, tree)});
    }
    settings_.resize(jobs.size());
    in_parallel(jobs.size(), [&](std::size_t j) {
        settings_[j] = std::make_unique<Setting>(question_, space_, j, jobs[j],
                                                 evaluation_like(evaluations_[like[j]], jobs[j]));
    });
    if (question_.free.checkpointing) {
        ranges_ = checkpoint_ranges(jobs, tree);
    }
}

/// Which of `evaluations_` has the operators of the job.
std::size_t SettingTable::evaluated_like(const TrainingJob& job) {
    const Cluster& cluster = question_.question.cluster;
    const Workload workload = workload_of(question_.question.tree, job, cluster.gpu);
    const auto known = std::ranges::find(workloads_, workload);
    const auto row = static_cast<std::size_t>(known - workloads_.begin());
    if (known == workloads_.end()) {
        workloads_.push_back(workload);
        evaluations_.push_back(evaluation_of(question_.question, facts_, job, cluster));
    }
    return row;
}

double SettingTable::least_cost(const CheckpointRange& range, std::int64_t limit_bytes) const {
    const StepBound& fewer = settings_[range.fewer]->bound();
    const StepBound& more = settings_[range.more]->bound();
    if (more.floor_bytes() > limit_bytes) {
        return std::numeric_limits<double>::infinity();
    }
    const std::int64_t freed =
        std::max<std::int64_t>(0, fewer.floor_at_loss_bytes() - more.floor_at_loss_bytes());
    return settings_[range.fewer]->cost_of(fewer.step_ns(limit_bytes + freed), more.floor_bytes());
}

double SettingTable::width(const CheckpointRange& range) const {
    const std::int64_t any = std::numeric_limits<std::int64_t>::max() / 2;
    const auto ns = [&](std::size_t setting) {
        return static_cast<double>(settings_[setting]->bound().step_ns(any));
    };
    return ns(range.more) / ns(range.fewer) - 1.0;
}

std::size_t SettingTable::halve(std::size_t range) {
    const CheckpointRange whole = ranges_[range];
    const std::size_t middle = settings_.size();
    const std::size_t blocks = (whole.fewer_blocks + whole.more_blocks) / 2;
    const TrainingJob job = with_checkpointed(settings_[whole.fewer]->job(), question_.question.tree, blocks);
    settings_.push_back(std::make_unique<Setting>(question_, space_, middle, job,
                                                  evaluation_like(evaluations_[evaluated_like(job)], job)));
    ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(range));
    CheckpointRange below = whole;
    below.more = middle;
    below.more_blocks = blocks;
    CheckpointRange above = whole;
    above.fewer = middle;
    above.fewer_blocks = blocks;
    for (const CheckpointRange& half : {below, above}) {
        if (half.numbers() > 0) {
            ranges_.push_back(half);
        }
    }
    return middle;
}

}  // namespace fsdplan
