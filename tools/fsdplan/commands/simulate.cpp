#include <fmt/core.h>

#include <memory>

#include "arguments.hpp"
#include "base/file.hpp"
#include "command.hpp"
#include "fsdplan/planner.hpp"
#include "fsdplan/report.hpp"
#include "question_options.hpp"
#include "version.hpp"

namespace fsdplan::cli {
namespace {

struct SimulateOptions {
    QuestionOptions question{.policy = {.default_policy = "blocks"}};
    std::string alloc_conf;
    bool contention = false;
    OutputOptions output;
};

enum class Format : std::uint8_t { json, trace, snapshot };

Format format_of(const std::string& file) {
    if (file.ends_with(".trace.json")) {
        return Format::trace;
    }
    if (file.ends_with(".snapshot.pickle")) {
        return Format::snapshot;
    }
    if (file.ends_with(".json")) {
        return Format::json;
    }
    throw Error(ErrorKind::input, "-o " + file,
                "expected a name that ends in .json, .trace.json or .snapshot.pickle");
}

std::vector<std::string> paths_of(const ModuleTree& tree) {
    std::vector<std::string> paths;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        paths.push_back(tree.path(static_cast<ModuleIndex>(m)));
    }
    return paths;
}

std::string written(const SweepQuestion& question, const StepResult& result, Format format) {
    const std::vector<std::string> modules = paths_of(question.tree);
    const TraceOptions options{.version = version(), .plan = result.plan.label, .modules = modules};
    switch (format) {
        case Format::trace:
            return trace_report(result.schedule, result.run, options);
        case Format::snapshot:
            return snapshot_report(result.schedule, result.log, options);
        case Format::json:
            break;
    }
    return json_report(question, result, version());
}

int run(const SimulateOptions& options) {
    const std::string& file = options.output.file;
    const Format format = file.empty() ? Format::json : format_of(file);  // a bad name stops before the work
    const StepOptions step{.contention = options.contention,
                           .allocator = parse_alloc_conf(options.alloc_conf, "--alloc-conf")};
    const AskedQuestion asked = options.question.ask();
    const SweepQuestion question = about_one_job(asked, "simulate");
    const TrainingJob& job = question.jobs.front();
    StepResult result = simulate_step(question, step);
    result.assumptions = options.question.assumptions(asked, job);
    result.assumptions.push_back(
        {"allocator", options.alloc_conf.empty() ? "PyTorch's defaults" : options.alloc_conf,
         options.alloc_conf.empty() ? "default" : "--alloc-conf", "PYTORCH_ALLOC_CONF"});
    if (!file.empty()) {
        write_file(file, written(question, result, format));
    }
    fmt::print(
        "{}", options.output.json ? json_report(question, result, version()) : text_report(question, result));
    return result.plan.runs() && !result.run.memory->out_of_memory ? answered : answered_no;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo simulate;
constinit const cli::CommandInfo simulate{
    .name = "simulate",
    .help =
        "one plan, one step, in full: collectives, streams, memory over time, the peak and what makes it up",
    .example = "fsdplan simulate llama3-8b --gpus 8 --batch 1 --seq 4096 -o step.trace.json",
    .setup = [](cli::Arguments& arguments) -> std::function<int()> {
        const auto options = std::make_shared<cli::SimulateOptions>();
        options->question.declare(arguments);
        arguments.group("Device");
        arguments.option(
            "--alloc-conf", options->alloc_conf,
            "the allocator's options as PYTORCH_ALLOC_CONF has them, e.g. expandable_segments:True", "TEXT");
        arguments.flag("--contention", options->contention,
                       "kernels and collectives slow each other down (event simulator)");
        arguments.group("Output");
        options->output.declare(arguments, "JSON, a trace for Perfetto or a memory snapshot by the suffix");
        return [options] { return cli::run(*options); };
    },
};

}  // namespace fsdplan::builtin::command
