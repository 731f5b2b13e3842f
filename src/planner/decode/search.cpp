#include "planner/decode/search.hpp"

#include <algorithm>

#include "planner/training_schedule.hpp"

namespace fsdplan {
namespace {

/// A job to try, with what its plans share once the first of them has been tried.
struct Way {
    TrainingJob job;
    std::optional<Evaluation> evaluation{};
};

/// The asked job as another runtime would have it.
TrainingJob under(const RuntimeInfo& info, TrainingJob job) {
    if (job.runtime == info.name) {
        return job;
    }
    const std::int64_t ranks = job.mesh.ranks();
    job.runtime = info.name;
    job.strategy = info.strategies.front();
    job.reshard_after_forward.reset();
    job.mesh = info.has_units ? Mesh{.replicate = 1, .shard = ranks} : Mesh{.replicate = ranks, .shard = 1};
    return job;
}

/// The job with its gradients all-reduced across two replicas; their number changes no size.
std::optional<TrainingJob> replicated(TrainingJob job) {
    const auto strategies = runtime(job.runtime).strategies;
    const auto hybrid = std::ranges::find_if(strategies, is_hybrid);
    if (hybrid == strategies.end() || is_hybrid(job.strategy)) {
        return std::nullopt;
    }
    job.strategy = *hybrid;
    job.mesh.replicate = 2;
    return job;
}

std::vector<TrainingJob> jobs_to_try(const DecodeQuestion& question, const std::vector<Sighting>& sightings) {
    const TrainingJob& asked = question.about.jobs.front();
    std::vector<TrainingJob> jobs{asked};
    if (!question.other_runtimes) {
        return jobs;
    }
    for (const RuntimeInfo* info : runtimes()) {
        if (info->name != asked.runtime) {
            jobs.push_back(under(*info, asked));
        }
    }
    const bool reduces =
        std::ranges::find(sightings, CollectiveKind::all_reduce, &Sighting::kind) != sightings.end();
    if (reduces && sharing_ranks(question.observed)) {
        const std::vector<TrainingJob> plain = jobs;
        for (const TrainingJob& job : plain) {
            if (const std::optional<TrainingJob> hybrid = replicated(job)) {
                jobs.push_back(*hybrid);
            }
        }
    }
    return jobs;
}

class Search {
public:
    Search(const DecodeQuestion& question, const std::vector<Sighting>& sightings)
        : question_(question),
          sightings_(sightings),
          facts_(facts_of(question.about.model, question.about.tree)) {
        out_.near.resize(sightings.size());
        explainable_ =
            std::ranges::count_if(sightings, [](const Sighting& seen) { return seen.full_numel() > 0; });
    }

    DecodeSearch run() {
        std::vector<Way> drawn;
        std::vector<Way> whole;
        for (const TrainingJob& job : jobs_to_try(question_, sightings_)) {
            (runtime(job.runtime).has_units ? drawn : whole).push_back({job});
        }
        for (Way& way : drawn) {
            attempt(way, question_.about.policy);
        }
        for (Way& way : drawn) {
            attempt_common_units(way);
        }
        for (Way& way : whole) {
            attempt(way, {});
        }
        return std::move(out_);
    }

private:
    bool done() const { return out_.best && explained_ == explainable_; }

    void attempt_common_units(Way& way) {
        if (done() || !question_.other_units) {
            return;
        }
        for (const PolicySpec& policy : common_units(question_.about.tree, wrap_options(way.job))) {
            attempt(way, policy);
        }
    }

    void attempt(Way& way, const PolicySpec& policy) {
        if (done()) {
            return;
        }
        const SweepQuestion& about = question_.about;
        const SweepQuestion question{.model = about.model,
                                     .tree = about.tree,
                                     .policy = policy,
                                     .sweep_thresholds = false,
                                     .wrap = about.wrap,
                                     .jobs = {way.job},
                                     .cluster = about.cluster};
        DecodedPlan plan{.job = way.job, .wrap = units_of(question, way.job), .calls = {}};
        ++asked_;
        if (const Diagnostic* error = refusal(plan.wrap)) {
            out_.refusal = asked_ == 1 ? error->message : out_.refusal;
            return;
        }
        ++out_.tried;
        if (!way.evaluation) {
            way.evaluation.emplace(evaluation_of(about, facts_, way.job, about.cluster));
        }
        plan.calls = predicted_calls(schedule_with_work(*way.evaluation, plan.wrap, way.job, {}));
        const std::int64_t explained = explained_by(plan);
        if (!out_.best || explained > explained_) {
            out_.best = std::move(plan);
            explained_ = explained;
        }
    }

    std::int64_t explained_by(const DecodedPlan& plan) {
        std::int64_t explained = 0;
        for (std::size_t s = 0; s < sightings_.size(); ++s) {
            const Sighting& seen = sightings_[s];
            if (std::ranges::any_of(plan.calls,
                                    [&](const PredictedCall& p) { return may_be(p.call, seen); })) {
                ++explained;
            } else {
                add_near_sizes(question_.about.tree, plan.wrap, plan.calls, seen, s, out_.near[s]);
            }
        }
        return explained;
    }

    const DecodeQuestion& question_;
    const std::vector<Sighting>& sightings_;
    ModelFacts facts_;
    DecodeSearch out_;
    std::int64_t asked_ = 0;      // plans, the refused ones too
    std::int64_t explained_ = 0;  // by the best
    std::int64_t explainable_ = 0;
};

}  // namespace

DecodeSearch search_plans(const DecodeQuestion& question, const std::vector<Sighting>& sightings) {
    return Search(question, sightings).run();
}

}  // namespace fsdplan
