#include <fmt/core.h>

#include <memory>

#include "base/file.hpp"
#include "command.hpp"
#include "model/inventory.hpp"
#include "options.hpp"

namespace fsdplan::cli {
namespace {

struct InspectOptions {
    ModelOptions model;
    OutputOptions output;
    bool tree = false;
};

int run_inspect(const InspectOptions& options) {
    const ModelGraph graph = options.model.load();
    const ModuleTree tree = flatten(graph);
    const Inventory inventory = inventory_of(graph, tree);
    if (!options.output.file.empty()) {
        write_file(options.output.file, inventory_json(inventory));
    }
    if (options.output.json) {
        fmt::print("{}", inventory_json(inventory));
        return answered;
    }
    fmt::print("{}", inventory_text(inventory));
    if (options.tree) {
        fmt::print("\nelements of the distinct parameters, module, class and own parameters\n{}",
                   tree_text(tree));
    }
    print_notes(inventory.notes);
    return answered;
}

}  // namespace
}  // namespace fsdplan::cli

namespace fsdplan::builtin::command {

extern const cli::CommandInfo inspect;
constinit const cli::CommandInfo inspect{
    .name = "inspect",
    .help = "what is in this model: classes, parameters, ties, repeated blocks",
    .example = "fsdplan inspect llama3-8b --tree",
    .setup =
        [](cli::Arguments& arguments) {
            const auto options = std::make_shared<cli::InspectOptions>();
            options->model.declare(arguments);
            options->output.declare(arguments, "JSON");
            arguments.flag("--tree", options->tree,
                           "print the module tree too, equal numbered siblings as one");
            return std::function<int()>([options] { return cli::run_inspect(*options); });
        },
};

}  // namespace fsdplan::builtin::command
