#include "fsdplan/calibrate.hpp"

#include <fmt/core.h>

#include <array>
#include <iterator>
#include <memory>

#include "arguments.hpp"
#include "base/file.hpp"
#include "command.hpp"
#include "fsdplan/report.hpp"
#include "options.hpp"
#include "version.hpp"

namespace fsdplan::cli {
namespace {

constexpr std::int64_t most_ranks = 1 << 20U;

struct CalibrateOptions {
    std::vector<std::string> logs;
    std::optional<std::string> collective;
    std::optional<std::int64_t> ranks;
    std::optional<std::int64_t> nodes;
    OutputOptions output;
};

CollectiveKind parse_kind(const std::string& text) {
    constexpr std::array kinds{CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                               CollectiveKind::all_reduce};
    std::vector<std::string> names;
    for (const CollectiveKind kind : kinds) {
        if (text == name(kind)) {
            return kind;
        }
        names.emplace_back(name(kind));
    }
    throw Error(ErrorKind::input, "--collective",
                "expected all_gather, reduce_scatter or all_reduce, found \"" + text + '"' +
                    did_you_mean(text, names));
}

Calibration imported(const CalibrateOptions& options) {
    LogOptions open{.ranks = options.ranks, .nodes = options.nodes};
    if (options.collective) {
        open.kind = parse_kind(*options.collective);
    }
    Calibration out{.backend = "nccl-tests"};
    for (const std::string& log : options.logs) {
        std::vector<CalibratedCurve> curves = read_nccl_tests(read_text(log), log, open);
        std::ranges::move(curves, std::back_inserter(out.curves));
    }
    return out;
}

int run(const CalibrateOptions& options) {
    const std::string& file = options.output.file;
    if (!file.empty() && !file.ends_with(".json")) {
        throw Error(ErrorKind::input, "-o " + file, "expected a name that ends in .json");
    }
    if (options.logs.empty()) {
        throw Error(ErrorKind::input, "calibrate", "expected --import with a log of nccl-tests");
    }
    const Calibration calibration = imported(options);
    const std::string json =
        options.output.json || !file.empty() ? json_report(calibration, version()) : std::string();
    if (!file.empty()) {
        write_file(file, json);
    }
    fmt::print("{}", options.output.json ? json : text_report(calibration));
    return answered;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo calibrate;
constinit const cli::CommandInfo calibrate{
    .name = "calibrate",
    .help = "curves of your own devices, for --calibration: read from nccl-tests or measured here",
    .example = "fsdplan calibrate --import all_gather.log --import reduce_scatter.log -o mine.json",
    .setup = [](cli::Arguments& arguments) -> std::function<int()> {
        const auto options = std::make_shared<cli::CalibrateOptions>();
        arguments.group("Logs of nccl-tests");
        arguments.option("--import", options->logs,
                         "output of all_gather_perf, reduce_scatter_perf or all_reduce_perf; may be repeated",
                         "LOG");
        arguments.option("--collective", options->collective, "the collective, where a log does not say it",
                         "NAME");
        arguments.option("--ranks", options->ranks, "ranks that took part, where a log does not list them", 2,
                         cli::most_ranks);
        arguments.option("--nodes", options->nodes, "nodes that they were on", 1, cli::most_ranks);
        arguments.group("Output");
        options->output.declare(arguments, "a calibration, as JSON");
        return [options] { return cli::run(*options); };
    },
};

}  // namespace fsdplan::builtin::command
