#include "question_options.hpp"

#include <iterator>

namespace fsdplan::cli {

SweepQuestion about_one_job(const AskedQuestion& asked, std::string_view command) {
    if (asked.jobs.size() != 1) {
        throw Error(ErrorKind::input, std::string(command),
                    "is about one plan; --" + asked.jobs.front().settings.front().first +
                        " has several values, which `fsdplan sweep` compares");
    }
    return {.model = asked.model,
            .tree = asked.tree,
            .policy = asked.policy,
            .sweep_thresholds = false,
            .wrap = asked.wrap,
            .jobs = {asked.jobs.front().job},
            .cluster = asked.cluster};
}

void QuestionOptions::declare(Arguments& arguments) {
    model.declare(arguments);
    cluster.declare(arguments);
    job.declare(arguments);
    policy.declare(arguments);
    frontend.declare(arguments);
}

AskedQuestion QuestionOptions::ask() const {
    AskedQuestion out;
    out.model = load_for_training(model, out.assumptions);
    out.tree = flatten(out.model);
    out.cluster = cluster.find();
    TrainingJob base = usual_job(out.model);
    const std::optional<FrontendPlan> file = frontend.read(out.model, out.tree, base, out.cluster.gpus);
    base.runtime = policy.default_runtime();
    if (file) {
        print_notes(file->notes);
        base = file->job;
        out.base = "settings file";
        for (const FrontendPlan::Setting& setting : file->settings) {
            out.assumptions.push_back({setting.name, setting.value, setting.from, ""});
        }
        if (file->trainable_dtype) {
            out.model = with_trainable_dtype(std::move(out.model), *file->trainable_dtype);
            out.tree = flatten(out.model);
        }
    }
    if (file && policy.policies.empty()) {
        out.policy = file->policy;
        out.wrap = file->wrap;
    } else {
        out.policy = policy.spec(out.tree);
        out.wrap = policy.wrap_options(out.tree);
        out.open_threshold = policy.leaves_threshold_open();
    }
    out.jobs = job.jobs(out.cluster, base);
    return out;
}

std::vector<Assumption> QuestionOptions::assumptions(const AskedQuestion& asked,
                                                     const TrainingJob& about) const {
    std::vector<Assumption> out = asked.assumptions;
    const auto append = [&](const std::vector<Assumption>& more) {
        out.insert(out.end(), more.begin(), more.end());
    };
    append(cluster.assumptions(asked.cluster));
    append(job.assumptions(asked.model, about, asked.base));
    return out;
}

}  // namespace fsdplan::cli
