#include <fmt/core.h>

#include <charconv>
#include <memory>

#include "arguments.hpp"
#include "base/file.hpp"
#include "command.hpp"
#include "fsdplan/execute.hpp"
#include "fsdplan/planner.hpp"
#include "fsdplan/report.hpp"
#include "question_options.hpp"
#include "ranks.hpp"
#include "version.hpp"

namespace fsdplan::cli {
namespace {

struct RunOptions {
    QuestionOptions question{.policy = {.default_policy = "blocks"}};
    std::string backend = "mpi";
    std::int64_t steps = 5;
    std::string scale = "1";
    std::string tolerance = "0.25";
    OutputOptions output;
};

double parse_share(const std::string& text, const char* option) {
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || !(value > 0.0 && value <= 1.0)) {
        throw Error(ErrorKind::input, option,
                    "expected a number above 0 and at most 1, found \"" + text + '"');
    }
    return value;
}

/// Everything that one rank decides before it meets the others.
struct Prepared {
    AskedQuestion asked;
    MeasuredStep result;
    ExecutionOptions execution;
};

/// The ranks that run are the GPUs that are asked about.
void take_ranks(ClusterOptions& cluster, const Backend& backend) {
    if (cluster.gpus && *cluster.gpus != backend.ranks()) {
        throw Error(ErrorKind::input, "--gpus",
                    std::to_string(*cluster.gpus) + " are asked about, but " +
                        std::to_string(backend.ranks()) + " ranks run");
    }
    cluster.gpus = backend.ranks();
    if (!cluster.gpus_per_node && backend.ranks() % backend.nodes() == 0) {
        cluster.gpus_per_node = backend.ranks() / backend.nodes();
    }
}

/// Predicts what the executor will do: scaled work, a host that is not PyTorch, no CUDA beside the allocator.
std::unique_ptr<Prepared> prepare(const RunOptions& options, const Backend& backend) {
    options.output.expect_json();
    QuestionOptions with_ranks = options.question;
    take_ranks(with_ranks.cluster, backend);
    auto out = std::make_unique<Prepared>();
    out->asked = with_ranks.ask();
    const SweepQuestion question = about_one_job(out->asked, "run");
    const TrainingJob& job = question.jobs.front();
    MeasuredStep& result = out->result;
    result.scale = parse_share(options.scale, "--scale");
    result.tolerance = parse_share(options.tolerance, "--tolerance");
    result.repeats = static_cast<int>(options.steps);
    result.predicted = simulate_step(question);
    if (!result.predicted.plan.runs()) {
        throw Error(ErrorKind::input, "run", "PyTorch refuses this plan; `fsdplan simulate` says why");
    }
    result.predicted.assumptions = with_ranks.assumptions(out->asked, job);
    out->execution = {.mesh = job.mesh,
                      .memory = {.device = out->asked.cluster.budget, .used_by_others = {}},
                      .repeats = result.repeats};
    result.predicted.schedule = scaled(std::move(result.predicted.schedule), result.scale);
    SimulationOptions simulation;
    simulation.pricing = {.mesh = job.mesh,
                          .compute_dtype = job.param_dtype.value_or(DType::float32),
                          .host = executor_host_costs()};
    simulation.memory = out->execution.memory;
    result.predicted.run = simulate(result.predicted.schedule, out->asked.cluster, simulation);
    return out;
}

int answer(const RunOptions& options, Prepared& prepared, Backend& backend) {
    MeasuredStep& result = prepared.result;
    result.backend = backend.name();
    result.library = backend.library();
    or_stop_all(backend,
                [&] { result.measured = execute(result.predicted.schedule, backend, prepared.execution); });
    result.errors =
        compare(result.predicted.schedule, result.predicted.run, result.measured,
                {.tolerance = result.tolerance, .judge_times = prepared.asked.cluster.calibrated});
    if (backend.rank() == 0) {
        const SweepQuestion question = about_one_job(prepared.asked, "run");
        const std::string json = json_report(question, result, version());
        if (!options.output.file.empty()) {
            write_file(options.output.file, json);
        }
        fmt::print("{}", options.output.json ? json : text_report(question, result));
    }
    return backend.rank() > 0 || all_within(result.errors) ? answered : answered_no;
}

int run(const RunOptions& options) {
    const std::unique_ptr<Backend> backend = open_backend(options.backend);
    std::unique_ptr<Prepared> prepared;
    const bool all_ready = on_every_rank(*backend, [&] { prepared = prepare(options, *backend); });
    return all_ready ? answer(options, *prepared, *backend) : answered;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo run;
constinit const cli::CommandInfo run{
    .name = "run",
    .help = "execute a plan's step on these devices: prediction beside measurement",
    .example = "mpirun -np 2 fsdplan run smollm2-135m --backend mpi --scale 0.01 --seq 64",
    .setup = [](cli::Arguments& arguments) -> std::function<int()> {
        const auto options = std::make_shared<cli::RunOptions>();
        options->question.declare(arguments);
        arguments.group("Devices");
        arguments.option("--backend", options->backend, "mpi: hosts, started by mpirun", "NAME");
        arguments.option("--steps", options->steps, "how often the step is executed and timed", 1, 1000);
        arguments.option("--scale", options->scale, "share of the arithmetic that is done, for slow devices",
                         "SHARE");
        arguments.option("--tolerance", options->tolerance, "how far a step's time may be off, as a share",
                         "SHARE");
        arguments.group("Output");
        options->output.declare(arguments, "JSON");
        return [options] { return cli::run(*options); };
    },
};

}  // namespace fsdplan::builtin::command
