#include "fsdplan/decode.hpp"

#include <fmt/core.h>

#include <iostream>
#include <iterator>
#include <memory>

#include "base/file.hpp"
#include "command.hpp"
#include "fsdplan/report.hpp"
#include "question_options.hpp"
#include "version.hpp"

namespace fsdplan::cli {
namespace {

struct DecodeOptions {
    QuestionOptions question{.policy = {.default_policy = "blocks"}};
    std::optional<std::int64_t> numel_in;
    std::optional<std::int64_t> numel_out;
    std::vector<std::string> lines;
    std::optional<std::string> file;
    OutputOptions output;
};

std::string standard_input() {
    return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

/// Two numbers without a word about the operation: their order says which it can be.
ObservedCollective of_sizes(std::int64_t numel_in, std::int64_t numel_out) {
    ObservedCollective seen{.input_numel = numel_in, .output_numel = numel_out};
    if (numel_in != numel_out) {
        seen.kind = numel_in < numel_out ? CollectiveKind::all_gather : CollectiveKind::reduce_scatter;
        seen.op = name(*seen.kind);
    }
    return seen;
}

std::vector<ObservedCollective> observed(const DecodeOptions& options) {
    const int ways = (options.numel_in || options.numel_out ? 1 : 0) + (options.lines.empty() ? 0 : 1) +
                     (options.file ? 1 : 0);
    if (ways != 1) {
        throw Error(ErrorKind::input, "decode",
                    "expected one of --numel-in with --numel-out, --line, or --file");
    }
    if (options.file) {
        return *options.file == "-" ? parse_collectives(standard_input(), "standard input")
                                    : parse_collectives(read_text(*options.file), *options.file);
    }
    if (!options.lines.empty()) {
        std::string text;
        for (const std::string& line : options.lines) {
            text += line + '\n';
        }
        return parse_collectives(text, "--line");
    }
    if (!options.numel_in || !options.numel_out) {
        throw Error(ErrorKind::input, options.numel_in ? "--numel-out" : "--numel-in",
                    "is missing; the quotient of both is the number of ranks");
    }
    return {of_sizes(*options.numel_in, *options.numel_out)};
}

/// The GPUs that the sizes speak of, where the command line says nothing about them.
void infer_gpus(QuestionOptions& question, const std::vector<ObservedCollective>& observed) {
    const std::optional<std::int64_t> ranks = sharing_ranks(observed);
    ClusterOptions& cluster = question.cluster;
    if (!ranks || cluster.cluster || cluster.gpus || question.job.mesh) {
        return;
    }
    const bool hybrid =
        !question.job.strategy.empty() && is_hybrid(parse_strategy(question.job.strategy.front()));
    // Replicas are not in the sizes; two are as good as any. A node holds one of them.
    cluster.gpus = hybrid ? 2 * *ranks : *ranks;
    cluster.gpus_per_node = ranks;
}

int run(const DecodeOptions& options) {
    options.output.expect_json();
    const std::string& file = options.output.file;
    const std::vector<ObservedCollective> seen = observed(options);
    QuestionOptions with_gpus = options.question;
    infer_gpus(with_gpus, seen);
    const AskedQuestion asked = with_gpus.ask();
    const SweepQuestion about = about_one_job(asked, "decode");
    const bool file_decides = asked.base != "default";
    DecodeResult result = decode({.about = about,
                                  .other_units = with_gpus.policy.policies.empty() && !file_decides,
                                  .other_runtimes = !with_gpus.job.runtime && !file_decides,
                                  .observed = seen});
    result.assumptions = with_gpus.assumptions(asked, result.job);
    const std::string json =
        options.output.json || !file.empty() ? json_report(about, result, version()) : std::string();
    if (!file.empty()) {
        write_file(file, json);
    }
    fmt::print("{}", options.output.json ? json : text_report(about, result));
    return result.complete() ? answered : answered_no;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo decode;
constinit const cli::CommandInfo decode{
    .name = "decode",
    .help = "which unit and how many ranks a collective belongs to, and whether the ranks are in step",
    .example = "fsdplan decode llama3-8b --numel-in 54528000 --numel-out 218112000",
    .setup = [](cli::Arguments& arguments) -> std::function<int()> {
        const auto options = std::make_shared<cli::DecodeOptions>();
        options->question.declare(arguments);
        arguments.group("Collectives");
        arguments.option("--numel-in", options->numel_in, "elements that one rank puts in", 1, largest_total);
        arguments.option("--numel-out", options->numel_out, "elements that one rank gets out", 1,
                         largest_total);
        arguments.option("--line", options->lines,
                         "a line of PyTorch's NCCL watchdog; may be repeated, for several ranks", "TEXT");
        arguments.option("--file", options->file,
                         "a log with such lines, or a flight recorder's dump as JSON; - is standard input",
                         "FILE");
        arguments.group("Output");
        options->output.declare(arguments, "JSON");
        return [options] { return cli::run(*options); };
    },
};

}  // namespace fsdplan::builtin::command
