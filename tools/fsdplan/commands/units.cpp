#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "base/file.hpp"
#include "command.hpp"
#include "frontend_options.hpp"
#include "fsdplan/schedule.hpp"
#include "job_options.hpp"
#include "options.hpp"
#include "policy_options.hpp"
#include "units_output.hpp"

namespace fsdplan::cli {
namespace {

struct UnitsOptions {
    ModelOptions model;
    PolicyOptions policy{.default_policy = "blocks"};
    FrontendOptions frontend;
    OutputOptions output;
    std::string runtime;
    bool use_orig_params = false;
    std::int64_t gpus = 8;
    std::optional<std::string> mesh;
    std::optional<std::string> reshard_after_forward;
    std::int64_t rank = 0;
    std::string param_dtype;
    std::vector<std::string> why;
};

/// `base`: what a settings file says, if there is one.
WrapOptions wrap_options(const UnitsOptions& options, const ModuleTree& tree, std::int64_t ranks,
                         WrapOptions base) {
    WrapOptions out = options.policy.ignore.empty() ? std::move(base) : options.policy.wrap_options(tree);
    out.use_orig_params |= options.use_orig_params;
    out.world_size = static_cast<int>(ranks);
    out.rank = static_cast<int>(options.rank);
    if (options.rank >= ranks) {
        throw Error(ErrorKind::input, "--rank",
                    "expected a rank below the " + std::to_string(ranks) + " that share a parameter");
    }
    if (!options.param_dtype.empty()) {
        out.mixed_precision = true;
        out.param_dtype = dtype_from_name(options.param_dtype);
        if (!out.param_dtype) {
            throw Error(ErrorKind::input, "--param-dtype",
                        "unknown dtype \"" + options.param_dtype + '"' +
                            did_you_mean(options.param_dtype, dtype_names()));
        }
    }
    return out;
}

/// What these options say about the training.
TrainingJob job_of(const UnitsOptions& options, const Mesh& mesh, bool fsdp2) {
    TrainingJob job;
    job.runtime = fsdp2 ? "fsdp2" : "fsdp1";
    job.mesh = mesh;
    job.use_orig_params = options.use_orig_params;
    if (options.reshard_after_forward) {
        job.reshard_after_forward = parse_reshard(*options.reshard_after_forward, job.mesh.shard);
    }
    return job;
}

Mesh mesh_of(const UnitsOptions& options, const std::optional<FrontendPlan>& file) {
    if (options.mesh) {
        return parse_mesh(*options.mesh);
    }
    return file && file->job.mesh.ranks() > 1 ? file->job.mesh : Mesh{.replicate = 1, .shard = options.gpus};
}

bool is_fsdp2(const UnitsOptions& options, const std::string& usual) {
    const std::string runtime = options.runtime.empty() ? usual : options.runtime;
    const std::vector<std::string> known{"fsdp1", "fsdp2"};
    if (std::ranges::find(known, runtime) == known.end()) {
        throw Error(ErrorKind::input, "--runtime",
                    "expected fsdp1 or fsdp2, found \"" + runtime + '"' + did_you_mean(runtime, known));
    }
    return runtime == "fsdp2";
}

int run_units(const UnitsOptions& options) {
    const ModelGraph graph = options.model.load();
    print_notes(graph.notes);
    const ModuleTree tree = flatten(graph);
    const auto file = options.frontend.read(graph, tree, {}, options.gpus);
    const bool units_of_file = file && options.policy.policies.empty();
    if (units_of_file && !runtime(file->job.runtime).has_units) {
        throw Error(ErrorKind::input, "units",
                    "the settings file asks for " + file->job.runtime +
                        ", which has no units; `fsdplan simulate` shows what it does");
    }
    if (file) {
        print_notes(file->notes);
    }
    const Mesh mesh = mesh_of(options, file);
    const WrapOptions how = wrap_options(options, tree, mesh.shard, file ? file->wrap : WrapOptions{});
    const PolicySpec spec = units_of_file ? file->policy : options.policy.spec(tree);
    const bool fsdp2 =
        is_fsdp2(options, units_of_file ? file->job.runtime : options.policy.default_runtime());
    WrapPlan plan = fsdp2 ? wrap_fsdp2(tree, spec, how) : wrap_fsdp1(tree, spec, how);
    std::ranges::move(refusals(tree, plan, job_of(options, mesh, fsdp2)),
                      std::back_inserter(plan.diagnostics));
    std::string reasons;
    for (const std::string& path : options.why) {
        const std::optional<ModuleIndex> m = tree.find(path);
        if (!m) {
            throw Error(ErrorKind::input, "--why", "the model has no module \"" + path + '"');
        }
        reasons += fmt::format("{} ({}) {}\n", path.empty() ? "the root" : path,
                               short_name(tree.class_info(*m).name), why(tree, spec, how, *m));
    }
    if (!options.output.file.empty()) {
        write_file(options.output.file, units_json(tree, plan, fsdp2, how));
    }
    fmt::print("{}",
               options.output.json ? units_json(tree, plan, fsdp2, how) : units_text(tree, plan, fsdp2, how));
    if (!options.output.json) {
        fmt::print("{}{}", reasons.empty() ? "" : "\n", reasons);
    }
    const bool refused = std::ranges::any_of(
        plan.diagnostics, [](const Diagnostic& d) { return d.severity != Severity::warning; });
    return refused ? answered_no : answered;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo units;
constinit const cli::CommandInfo units{
    .name = "units",
    .help = "where the wrap boundaries fall under one policy, and whether PyTorch would accept them",
    .example = "fsdplan units llama3-8b --policy size:100M --gpus 8",
    .setup =
        [](cli::Arguments& arguments) {
            const auto options = std::make_shared<cli::UnitsOptions>();
            options->model.declare(arguments);
            options->policy.declare(arguments);
            options->frontend.declare(arguments);
            arguments.group("Sharding");
            arguments.option("--runtime", options->runtime,
                             "fsdp1 or fsdp2; fsdp2 unless a size: or rules: policy is asked for", "RUNTIME");
            arguments.flag("--use-orig-params", options->use_orig_params,
                           "FSDP1 keeps the original parameters");
            arguments.option("--gpus", options->gpus, "ranks that a parameter is sharded over", 1, 1 << 20);
            arguments.option("--mesh", options->mesh, "replicas x shards instead of --gpus, such as 2x8",
                             "RxS");
            arguments.option("--reshard-after-forward", options->reshard_after_forward,
                             "fsdp2: true, false or a number of ranks", "VALUE");
            arguments.option("--rank", options->rank, "the rank whose pieces are shown", 0, 1 << 20);
            arguments.option("--param-dtype", options->param_dtype, "MixedPrecision(param_dtype=…)", "DTYPE");
            arguments.group("Output");
            arguments.option("--why", options->why,
                             "say why this module is or is not a unit; may be repeated", "MODULE");
            options->output.declare(arguments, "JSON");
            return std::function<int()>([options] { return cli::run_units(*options); });
        },
};

}  // namespace fsdplan::builtin::command
