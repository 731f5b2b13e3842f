#include <fmt/core.h>

#include <memory>

#include "arguments.hpp"
#include "base/file.hpp"
#include "checkpoint_options.hpp"
#include "command.hpp"
#include "fsdplan/report.hpp"
#include "version.hpp"

namespace fsdplan::cli {
namespace {

struct CheckpointOptions {
    QuestionOptions question{.policy = {.default_policy = "blocks"}};
    SaveOptions save;
    std::string load_into;
    std::string mismatch;
    OutputOptions output;
};

/// The route by which a format saves.
const SaveRoute& route_of(const CheckpointFormat& format) {
    const bool fsdp1 = format.runtime == StateRuntime::fsdp1;
    const bool plain = format.runtime == StateRuntime::plain;
    const char* name = "";
    switch (format.writer) {
        case CheckpointWriter::rank0:
            name = fsdp1 ? "fsdp1_full" : plain ? "plain_torch" : "dsd_full";
            break;
        case CheckpointWriter::every_rank:
            name = !fsdp1                                           ? "naive_rank"
                   : format.model.form == StateRequest::Form::local ? "fsdp1_local"
                                                                    : "fsdp1_sharded";
            break;
        case CheckpointWriter::dcp:
            name = plain ? "plain_dcp" : format.staging == Staging::none ? "dsd_dcp" : "dsd_dcp_async";
            break;
        case CheckpointWriter::dcp_safetensors:
            name = "hf_dcp";
            break;
    }
    return *find_save_route(name);
}

/// The loader that one would take for what was written.
const LoadRoute& usual_loader(const SaveRoute& save, StateRuntime runtime) {
    const bool fsdp1 = runtime == StateRuntime::fsdp1;
    const bool plain = runtime == StateRuntime::plain;
    const char* name = "";
    switch (save.container) {
        case Container::full_file:
            name = plain ? "plain_torch" : fsdp1 ? "fsdp1_full" : "dsd_full_bcast";
            break;
        case Container::rank_files:
            name = !fsdp1                                   ? "naive_rank"
                   : save.form == StateRequest::Form::local ? "fsdp1_local"
                                                            : "fsdp1_sharded";
            break;
        case Container::dcp:
            name = plain ? "dcp_to_torch_plain" : "dsd_dcp";
            break;
        case Container::safetensors:
            name = "safetensors";
            break;
        case Container::hf_safetensors:
            name = "hf_dcp";
            break;
    }
    return *find_load_route(name);
}

CheckpointSide side_of(const SweepQuestion& question, const TrainingJob& job, bool with_optimizer) {
    CheckpointSide side;
    side.layout = state_layout(question.model, units_of(question, job), job);
    side.layout.device_mesh = side.layout.runtime == StateRuntime::fsdp2;
    side.optimizer = with_optimizer ? job.optimizer.kind : "none";
    side.checkpoint_wrapper = job.activation_checkpointing.wrapped;
    return side;
}

CheckpointLoad load_of(const SweepQuestion& question, const CheckpointOptions& options,
                       const CheckpointPlan& plan) {
    const TrainingJob& job = question.jobs.front();
    const LoadInto into = parse_load_into(options.load_into, job);
    const std::size_t format = plan.asked.value_or(plan.recommended.value_or(0));
    const SaveRoute& save = route_of(*plan.costs[format].format);
    const CheckpointSide from = side_of(question, job, !options.save.model_only);
    CheckpointSide to = side_of(question, into.job, into.with_optimizer && !options.save.model_only);
    to.layout.device_mesh |= into.device_mesh;
    if (!into.dtype.empty()) {
        const auto dtype = dtype_from_name(into.dtype);
        if (!dtype) {
            throw Error(ErrorKind::input, "--load-into",
                        "unknown dtype \"" + into.dtype + "\"" + did_you_mean(into.dtype, dtype_names()));
        }
        for (StateTensor& tensor : to.layout.tensors) {
            tensor.dtype = is_floating_point(tensor.dtype) ? *dtype : tensor.dtype;
        }
    }
    const LoadRoute& load =
        into.route ? *find_load_route(*into.route) : usual_loader(save, to.layout.runtime);
    CheckpointLoad out{.save = std::string(save.name), .load = std::string(load.name)};
    out.found = compatibility(from, save, to, load);
    out.remedy = remedy(out.found, from, save, to);
    return out;
}

int run(const CheckpointOptions& options) {
    const AskedQuestion asked = options.question.ask();
    const SweepQuestion question = about_one_job(asked, "checkpoint");
    const TrainingJob& job = question.jobs.front();
    const CheckpointWish wish = options.save.wish(asked, job);
    CheckpointResult result;
    result.plan = evaluate(question, units_of(question, job), job);
    result.checkpoint = plan_checkpoint(question, job, result.plan, wish);
    if (!options.load_into.empty()) {
        result.load = load_of(question, options, result.checkpoint);
    }
    if (!options.mismatch.empty()) {
        result.mismatch = parse_mismatch(options.mismatch);
    }
    result.assumptions = options.question.assumptions(asked, job);
    for (const Assumption& assumption : options.save.assumptions(wish)) {
        result.assumptions.push_back(assumption);
    }
    const std::string json = json_report(question, result, version());
    if (!options.output.file.empty()) {
        write_file(options.output.file, json);
    }
    fmt::print("{}", options.output.json ? json : text_report(question, result));
    const bool loads = !result.load || result.load->found.outcome == Outcome::ok;
    return result.checkpoint.fits && loads ? answered : answered_no;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo checkpoint;
constinit const cli::CommandInfo checkpoint{
    .name = "checkpoint",
    .help = "what every way of saving costs beside the training state, and what loads into what",
    .example = "fsdplan checkpoint llama3-8b --gpus 8 --load-into fsdp2,world=48",
    .setup = [](cli::Arguments& arguments) -> std::function<int()> {
        const auto options = std::make_shared<cli::CheckpointOptions>();
        options->question.declare(arguments);
        arguments.group("Saving");
        options->save.declare(arguments);
        arguments.option("--load-into", options->load_into,
                         "whether what is saved loads elsewhere: RUNTIME[,world=N][,mesh=RxS][,strategy=S]"
                         "[,use-orig-params=B][,device-mesh=B][,dtype=D][,optimizer=O|none][,route=R]",
                         "WHERE");
        arguments.option(
            "--mismatch", options->mismatch,
            "what the two shapes of a failed load are: SAVED:CURRENT, e.g. 257152x2048:131661824", "SHAPES");
        arguments.group("Output");
        options->output.declare(arguments, "JSON");
        return [options] { return cli::run(*options); };
    },
};

}  // namespace fsdplan::builtin::command
