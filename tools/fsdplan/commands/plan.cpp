#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <memory>

#include "base/file.hpp"
#include "base/quantity.hpp"
#include "checkpoint_options.hpp"
#include "command.hpp"
#include "fsdplan/frontend.hpp"
#include "fsdplan/report.hpp"
#include "fsdplan/search.hpp"
#include "question_options.hpp"
#include "version.hpp"

namespace fsdplan::cli {
namespace {

struct PlanOptions {
    QuestionOptions question{.policy = {.default_policy = "blocks"}};
    std::optional<std::int64_t> global_batch;
    std::string minimize = "time";
    bool check = false;
    SaveOptions save;
    OutputOptions output;
};

enum class Format : std::uint8_t { json, html, settings };

/// The front end whose settings a file of this name holds; nullptr for a file of ours.
const FrontendInfo* front_end_of(const std::string& file) {
    for (const FrontendInfo* info : builtin::frontends()) {
        if (!info->extension.empty() && file.ends_with("." + std::string(info->extension))) {
            return info;
        }
    }
    return nullptr;
}

Format format_of(const std::string& file) {
    if (front_end_of(file) != nullptr) {
        return Format::settings;
    }
    const std::string suffix = std::filesystem::path(file).extension().string();
    if (suffix == ".json") {
        return Format::json;
    }
    if (suffix == ".html" || suffix == ".htm") {
        return Format::html;
    }
    std::string known = ".json, .html";
    for (const FrontendInfo* info : builtin::frontends()) {
        known +=
            info->extension.empty() ? std::string() : fmt::format(", .{} ({})", info->extension, info->name);
    }
    throw Error(ErrorKind::input, "-o " + file, "expected a name that ends in one of " + known);
}

Objective objective_of(const std::string& text) {
    if (text != "time" && text != "memory") {
        throw Error(ErrorKind::input, "--minimize", "expected time or memory, found \"" + text + "\"");
    }
    return text == "time" ? Objective::time : Objective::memory;
}

/// What the command line pins is not searched for.
Freedom freedom_of(const PlanOptions& options) {
    const JobOptions& job = options.question.job;
    const bool pinned_kernels =
        !job.optimizer.empty() && job.optimizer.front().find(':') != std::string::npos;
    return {.units = options.question.policy.policies.empty(),
            .reshard = !job.reshard_after_forward,
            .mesh = !job.mesh && job.strategy.empty(),
            .checkpointing = job.activation_checkpointing.empty(),
            .optimizer = !pinned_kernels,
            .batch = options.global_batch.has_value(),
            .prefetch = true};
}

/// A global batch as the micro-batches of one GPU: all in one, which the search splits.
void spread(std::int64_t global_batch, const Cluster& cluster, std::vector<ListedJob>& jobs) {
    if (global_batch % cluster.gpus != 0) {
        throw Error(ErrorKind::input, "--global-batch",
                    fmt::format("{} sequences do not divide among {} GPUs", global_batch, cluster.gpus));
    }
    for (ListedJob& listed : jobs) {
        listed.job.batch = global_batch / cluster.gpus;
        listed.job.accumulate = 1;
    }
}

// Set by a signal.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> interrupted = false;

/// Says on a terminal how far the search is once it takes longer; an interrupt ends it with the best so far.
class Progress {
public:
    Progress() : shown_(isatty(STDERR_FILENO) == 1), before_(std::signal(SIGINT, on_interrupt)) {}
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    Progress(Progress&&) = delete;
    Progress& operator=(Progress&&) = delete;
    ~Progress() {
        std::signal(SIGINT, before_);
        if (said_) {
            fmt::print(stderr, "\r\033[K");
        }
    }

    bool report(const SearchProgress& progress) {
        constexpr auto patience = std::chrono::milliseconds(500);
        if (shown_ && std::chrono::steady_clock::now() - begin_ > patience) {
            said_ = true;
            fmt::print(
                stderr, "\r\033[K{} plans simulated, {} % of the work at most; best {}", progress.simulated,
                progress.work_permille / 10,
                progress.best_step_ns ? show_duration(*progress.best_step_ns) : std::string("none yet"));
        }
        return !interrupted;
    }

private:
    static void on_interrupt(int /*signal*/) { interrupted = true; }

    bool shown_;
    bool said_ = false;
    void (*before_)(int);
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

std::string written(const SearchQuestion& question, const SearchResult& result, Format format) {
    if (format == Format::json) {
        return json_report(question, result, version());
    }
    return html_report(json_report(with_jobs(question.question, result.jobs), as_sweep(result), version()));
}

/// The recommended plan in another tool's words.
void write_recommended(const AskedQuestion& asked, const SearchResult& result, const std::string& file) {
    if (!result.recommended) {
        print_notes({"no plan fits, so that " + file + " is not written"});
        return;
    }
    write_file(file, write_settings(*front_end_of(file), {.model = asked.model,
                                                          .tree = asked.tree,
                                                          .job = result.jobs[result.recommended->job],
                                                          .plan = result.recommended->wrap}));
}

int run(const PlanOptions& options) {
    const std::string& file = options.output.file;
    const Format format = file.empty() ? Format::json : format_of(file);  // a bad name stops before the work
    const Objective objective = objective_of(options.minimize);
    AskedQuestion asked = options.question.ask();
    if (options.global_batch) {
        spread(*options.global_batch, asked.cluster, asked.jobs);
    }
    Progress progress;
    SearchQuestion question{.question = {.model = asked.model,
                                         .tree = asked.tree,
                                         .policy = asked.policy,
                                         .sweep_thresholds = false,
                                         .wrap = asked.wrap,
                                         .jobs = {},
                                         .cluster = asked.cluster},
                            .free = freedom_of(options),
                            .objective = objective,
                            .saving = options.save.wish(),
                            .proceed = [&](const SearchProgress& so_far) { return progress.report(so_far); }};
    for (const ListedJob& listed : asked.jobs) {
        question.question.jobs.push_back(listed.job);
    }
    SearchResult result = options.check ? check_plan(question) : search(question);
    std::vector<Assumption> assumptions = options.question.assumptions(asked, question.question.jobs.front());
    std::ranges::move(result.assumptions, std::back_inserter(assumptions));
    result.assumptions = std::move(assumptions);
    if (!file.empty() && format != Format::settings) {
        write_file(file, written(question, result, format));
    }
    fmt::print(
        "{}", options.output.json ? json_report(question, result, version()) : text_report(question, result));
    if (format == Format::settings) {
        write_recommended(asked, result, file);
    }
    return result.recommended ? answered : answered_no;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo plan;
constinit const cli::CommandInfo plan{
    .name = "plan",
    .help =
        "the fastest plan that fits, what it costs and why, how far from the best it can be, and its code",
    .example = "fsdplan plan llama3-8b --gpu h100-sxm --gpus 8 --seq 4096 -o plan.json",
    .setup = [](cli::Arguments& arguments) -> std::function<int()> {
        const auto options = std::make_shared<cli::PlanOptions>();
        options->question.declare(arguments);
        arguments.group("Search");
        constexpr std::int64_t most = std::int64_t{1} << 32U;
        arguments.option("--global-batch", options->global_batch,
                         "sequences a step over all GPUs; micro-batch and accumulation are then chosen", 1,
                         most);
        arguments.option("--minimize", options->minimize, "time or memory; time", "WHAT");
        arguments.flag("--check", options->check, "no search: what the given settings cost");
        options->save.declare_type(arguments);
        arguments.group("Output");
        options->output.declare(arguments,
                                "JSON, HTML, or the recommended plan as .yaml of accelerate, .toml of "
                                "torchtitan or .deepspeed.json");
        return [options] { return cli::run(*options); };
    },
};

}  // namespace fsdplan::builtin::command
