#include "fsdplan/explain.hpp"

#include <fmt/core.h>

#include <memory>

#include "arguments.hpp"
#include "base/file.hpp"
#include "command.hpp"
#include "fsdplan/report.hpp"
#include "question_options.hpp"
#include "version.hpp"

namespace fsdplan::cli {
namespace {

struct ExplainOptions {
    QuestionOptions question{.policy = {.default_policy = "blocks"}};
    std::string alloc_conf;
    OutputOptions output;
};

int run(const ExplainOptions& options) {
    options.output.expect_json();
    const std::string& file = options.output.file;
    const StepOptions step{.allocator = parse_alloc_conf(options.alloc_conf, "--alloc-conf")};
    const AskedQuestion asked = options.question.ask();
    const SweepQuestion question = about_one_job(asked, "explain");
    Explanation result = explain(question, step);
    result.step.assumptions = options.question.assumptions(asked, question.jobs.front());
    if (!file.empty()) {
        write_file(file, json_report(question, result, version()));
    }
    fmt::print(
        "{}", options.output.json ? json_report(question, result, version()) : text_report(question, result));
    return result.step.plan.runs() && !result.step.run.memory->out_of_memory ? answered : answered_no;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo explain;
constinit const cli::CommandInfo explain{
    .name = "explain",
    .help = "why a plan does not fit, or waits: what is alive at the peak, and what single changes would do",
    .example = "fsdplan explain llama3-8b --gpus 8 --batch 4 --seq 4096",
    .setup = [](cli::Arguments& arguments) -> std::function<int()> {
        const auto options = std::make_shared<cli::ExplainOptions>();
        options->question.declare(arguments);
        arguments.group("Device");
        arguments.option(
            "--alloc-conf", options->alloc_conf,
            "the allocator's options as PYTORCH_ALLOC_CONF has them, e.g. expandable_segments:True", "TEXT");
        arguments.group("Output");
        options->output.declare(arguments, "JSON");
        return [options] { return cli::run(*options); };
    },
};

}  // namespace fsdplan::builtin::command
