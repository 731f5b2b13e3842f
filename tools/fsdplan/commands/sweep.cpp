#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>

#include "base/file.hpp"
#include "command.hpp"
#include "fsdplan/planner.hpp"
#include "fsdplan/report.hpp"
#include "question_options.hpp"
#include "version.hpp"

namespace fsdplan::cli {
namespace {

struct SweepOptions {
    QuestionOptions question{.policy = {.default_policy = "size"}};
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
    const AskedQuestion asked = options.question.ask();
    SweepQuestion question{.model = asked.model,
                           .tree = asked.tree,
                           .policy = asked.policy,
                           .sweep_thresholds = asked.open_threshold,
                           .wrap = asked.wrap,
                           .jobs = {},
                           .cluster = asked.cluster};
    for (const ListedJob& listed : asked.jobs) {
        question.jobs.push_back(listed.job);
    }
    SweepResult result = sweep(question);
    for (PlanResult& plan : result.plans) {
        plan.settings = asked.jobs[plan.job].settings;
    }
    std::vector<Assumption> assumptions =
        options.question.assumptions(asked, question.jobs[result.plans[result.shown].job]);
    std::ranges::move(result.assumptions, std::back_inserter(assumptions));
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
        options->question.declare(arguments);
        arguments.group("Output");
        options->output.declare(arguments, "JSON or HTML by the suffix");
        return [options] { return cli::run(*options); };
    },
};

}  // namespace fsdplan::builtin::command
