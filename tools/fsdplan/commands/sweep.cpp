#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/file.hpp"
#include "cluster_options.hpp"
#include "command.hpp"
#include "fsdplan/planner.hpp"
#include "fsdplan/report.hpp"
#include "job_options.hpp"
#include "options.hpp"
#include "policy_options.hpp"
#include "version.hpp"

namespace fsdplan::cli {
namespace {

struct SweepOptions {
    ModelOptions model;
    ClusterOptions cluster;
    JobOptions job;
    PolicyOptions policy{.default_policy = "size"};
    OutputOptions output;
};

enum class Format : std::uint8_t { json, html };

Format format_of(const std::string& file) {
    const std::string suffix = std::filesystem::path(file).extension().string();
    if (suffix == ".json") {
        return Format::json;
    }
    if (suffix == ".html" || suffix == ".htm") {
        return Format::html;
    }
    throw Error(ErrorKind::input, "-o " + file, "expected a name that ends in .json or .html");
}

int run(const SweepOptions& options) {
    const std::string& file = options.output.file;
    const Format format = file.empty() ? Format::json : format_of(file);  // a bad name stops before the work
    std::vector<Assumption> assumptions;
    const ModelGraph model = load_for_training(options.model, assumptions);
    const ModuleTree tree = flatten(model);
    const Cluster cluster = options.cluster.find();
    const std::vector<ListedJob> jobs = options.job.jobs(model, cluster, options.policy.default_runtime());
    SweepQuestion question{.model = model,
                           .tree = tree,
                           .policy = options.policy.spec(tree),
                           .sweep_thresholds = options.policy.leaves_threshold_open(),
                           .wrap = options.policy.wrap_options(tree),
                           .jobs = {},
                           .cluster = cluster};
    for (const ListedJob& listed : jobs) {
        question.jobs.push_back(listed.job);
    }
    SweepResult result = sweep(question);
    for (PlanResult& plan : result.plans) {
        plan.settings = jobs[plan.job].settings;
    }
    const auto append = [&](std::vector<Assumption> more) {
        assumptions.insert(assumptions.end(), more.begin(), more.end());
    };
    append(options.cluster.assumptions(cluster));
    append(options.job.assumptions(model, question.jobs[result.plans[result.shown].job]));
    append(std::move(result.assumptions));
    result.assumptions = std::move(assumptions);

    const std::string json =
        options.output.json || !file.empty() ? json_report(question, result, version()) : std::string();
    if (!file.empty()) {
        write_file(file, format == Format::json ? json : html_report(json));
    }
    fmt::print("{}", options.output.json ? json : text_report(question, result));
    const bool none = std::ranges::all_of(
        result.plans, [](const PlanResult& plan) { return plan.fits == false || !plan.runs(); });
    return none ? answered_no : answered;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo sweep;
constinit const cli::CommandInfo sweep{
    .name = "sweep",
    .help = "every distinct plan over min_num_params: units, memory, traffic, step time, which ones fit",
    .example = "fsdplan sweep llama3-8b --gpu h100-sxm --gpus 8 --batch 1 --seq 4096 -o sweep.html",
    .setup = [](cli::Arguments& arguments) -> std::function<int()> {
        const auto options = std::make_shared<cli::SweepOptions>();
        options->model.declare(arguments);
        options->cluster.declare(arguments);
        options->job.declare(arguments);
        options->policy.declare(arguments);
        arguments.group("Output");
        options->output.declare(arguments, "JSON or HTML by the suffix");
        return [options] { return cli::run(*options); };
    },
};

}  // namespace fsdplan::builtin::command
