#include <fmt/core.h>

#include <memory>

#include "base/file.hpp"
#include "command.hpp"
#include "model/inventory.hpp"
#include "options.hpp"
#include "stored_checkpoint_output.hpp"

namespace fsdplan::cli {
namespace {

struct InspectOptions {
    ModelOptions model;
    OutputOptions output;
    bool tree = false;
    bool checkpoint = false;
};

void put_out(const OutputOptions& output, const std::string& json, const std::string& text) {
    if (!output.file.empty()) {
        write_file(output.file, json);
    }
    fmt::print("{}", output.json ? json : text);
}

int inspect_checkpoint(const InspectOptions& options) {
    const StoredCheckpoint checkpoint = read_checkpoint(options.model.model);
    put_out(options.output, checkpoint_json(checkpoint), checkpoint_text(checkpoint, options.tree));
    return checkpoint.is_complete() ? answered : answered_no;
}

int run_inspect(const InspectOptions& options) {
    if (options.checkpoint || is_checkpoint(options.model.model)) {
        return inspect_checkpoint(options);
    }
    const ModelGraph graph = options.model.load();
    const ModuleTree tree = flatten(graph);
    const Inventory inventory = inventory_of(graph, tree);
    std::string text = inventory_text(inventory);
    if (options.tree) {
        text += "\nelements of the distinct parameters, module, class and own parameters\n" + tree_text(tree);
    }
    put_out(options.output, inventory_json(inventory), text);
    if (!options.output.json) {
        print_notes(inventory.notes);
    }
    return answered;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo inspect;
constinit const cli::CommandInfo inspect{
    .name = "inspect",
    .help =
        "what is in this model (classes, parameters, ties, repeated blocks) or checkpoint (tensors, pieces, "
        "files)",
    .example = "fsdplan inspect llama3-8b --tree",
    .setup =
        [](cli::Arguments& arguments) {
            const auto options = std::make_shared<cli::InspectOptions>();
            options->model.declare(arguments);
            options->output.declare(arguments, "JSON");
            arguments.flag("--tree", options->tree,
                           "print the module tree too, equal numbered siblings as one; of a checkpoint its "
                           "tensors");
            arguments.flag("--checkpoint", options->checkpoint,
                           "take safetensors files for the files of a checkpoint, not for a model");
            return std::function<int()>([options] { return cli::run_inspect(*options); });
        },
};

}  // namespace fsdplan::builtin::command
