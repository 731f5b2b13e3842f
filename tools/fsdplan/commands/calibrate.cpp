#include "fsdplan/calibrate.hpp"

#include <fmt/core.h>

#include <iterator>
#include <memory>

#include "arguments.hpp"
#include "base/file.hpp"
#include "base/quantity.hpp"
#include "command.hpp"
#include "fsdplan/measure.hpp"
#include "fsdplan/report.hpp"
#include "options.hpp"
#include "ranks.hpp"
#include "version.hpp"

namespace fsdplan::cli {
namespace {

struct CalibrateOptions {
    std::vector<std::string> logs;
    std::optional<std::string> collective;
    std::optional<std::int64_t> ranks;
    std::optional<std::int64_t> nodes;
    std::optional<std::string> backend;
    std::int64_t budget_s = 60;
    std::string most = "64MiB";
    OutputOptions output;
};

CollectiveKind parse_kind(const std::string& text) {
    if (const auto kind = find_curve_kind(text)) {
        return *kind;
    }
    std::vector<std::string> names;
    for (const CollectiveKind kind : curve_kinds) {
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

void check(const CalibrateOptions& options) {
    options.output.expect_json();
    if (options.logs.empty() == !options.backend) {
        throw Error(ErrorKind::input, "calibrate",
                    "expected either --backend or --import with a log of nccl-tests");
    }
}

void print(const CalibrateOptions& options, const Calibration& calibration) {
    const std::string& file = options.output.file;
    const std::string json =
        options.output.json || !file.empty() ? json_report(calibration, version()) : std::string();
    if (!file.empty()) {
        write_file(file, json);
    }
    fmt::print("{}", options.output.json ? json : text_report(calibration));
}

int measure(const CalibrateOptions& options) {
    const std::unique_ptr<Backend> backend = open_backend(*options.backend);
    MeasuringOptions measuring{.budget_s = options.budget_s};
    const bool all_ready = on_every_rank(*backend, [&] {
        check(options);
        measuring.most = parse_bytes(options.most, "--most");
        if (measuring.most.count < 4 * measuring.least.count || measuring.most > 4_GiB) {
            throw Error(ErrorKind::input, "--most", "expected 4KiB to 4GiB, found " + options.most);
        }
    });
    if (!all_ready) {
        return answered;
    }
    Calibration calibration;
    or_stop_all(*backend, [&] { calibration = measure_devices(*backend, measuring); });
    if (backend->rank() == 0) {
        print(options, calibration);
    }
    return answered;
}

int run(const CalibrateOptions& options) {
    if (options.backend) {
        return measure(options);
    }
    check(options);
    print(options, imported(options));
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
                         most_gpus);
        arguments.option("--nodes", options->nodes, "nodes that they were on", 1, most_gpus);
        arguments.group("Measuring here");
        arguments.option("--backend", options->backend, "mpi: hosts, started by mpirun", "NAME");
        arguments.option("--budget", options->budget_s, "seconds for all measurements", 1, 3600);
        arguments.option("--most", options->most, "full size of the largest collective", "BYTES");
        arguments.group("Output");
        options->output.declare(arguments, "a calibration, as JSON");
        return [options] { return cli::run(*options); };
    },
};

}  // namespace fsdplan::builtin::command
