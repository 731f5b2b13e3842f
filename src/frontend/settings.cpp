#include "base/file.hpp"
#include "frontend/compare_plans.hpp"
#include "fsdplan/frontend.hpp"

namespace fsdplan {
namespace {

constexpr std::uintmax_t largest_file = std::uintmax_t{1} << 26U;  // a result with a plan in it has megabytes

/// What a front end that is told nothing leaves to the training script.
TrainingJob open_to_settings(const PlanToWrite& plan) {
    TrainingJob job = plan.job;
    job.mesh = {};
    job.reshard_after_forward = std::nullopt;
    job.fsdp2.forward_prefetch.clear();
    job.fsdp2.backward_prefetch.clear();
    return job;
}

}  // namespace

FrontendPlan read_settings(const FrontendInfo& info, const std::string& file, const FrontendQuestion& about) {
    return info.read(read_file(file, largest_file), file, about);
}

std::string write_settings(const FrontendInfo& info, const PlanToWrite& plan) {
    const std::string where = "settings of " + std::string(info.name);
    if (info.write == nullptr) {
        throw Error(ErrorKind::input, where, "are read only; fsdplan writes no plan for it");
    }
    std::string text = info.write(plan);
    // Whatever a front end does beyond what it is told shows when its settings are read like anybody's.
    const FrontendQuestion question{.model = plan.model,
                                    .tree = plan.tree,
                                    .job = open_to_settings(plan),
                                    .ranks = static_cast<int>(plan.job.mesh.ranks())};
    const std::string difference = frontend::first_difference(plan, info.read(text, where, question));
    if (!difference.empty()) {
        throw Error(ErrorKind::input, where, "cannot say this plan: " + difference);
    }
    return text;
}

}  // namespace fsdplan
