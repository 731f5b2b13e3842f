#include <algorithm>
#include <memory>

#include "model/importer.hpp"
#include "model/onnx/fuse.hpp"
#include "model/onnx/player.hpp"

// ONNX files (docs/formats.md): what torch.onnx.export writes, by either of its exporters.
namespace fsdplan {
namespace {

bool trains(const onnx::Graph& graph) {
    return std::ranges::any_of(graph.nodes, [](const onnx::Node& node) {
        return node.op == "BatchNormalization" || node.op == "Dropout";
    });
}

ModelGraph read(const ImportSource& source, const ImportOptions& options) {
    auto imported = std::make_shared<onnx::ImportedGraph>();
    imported->graph = onnx::read_graph(source.path.string(), source.shown);
    onnx::fuse(imported->graph);
    onnx::Modules modules = onnx::modules_of(imported->graph, options);
    imported->slots = std::move(modules.slots);
    imported->slot_of_input = std::move(modules.slot_of_input);

    ModelGraph graph = std::move(modules.model);
    graph.source = "ONNX, " + imported->graph.producer;
    const onnx::FixedSizes fixed = onnx::fixed_sizes(imported->graph);
    graph.recorded_batch = fixed.batch;
    graph.longest_sequence = fixed.sequence;
    if (!trains(imported->graph)) {
        graph.notes.emplace_back(
            "exported for inference: dropout, if the model has any, is not in the file, and batch norms are "
            "part of the "
            "convolutions before them; what the rest keeps for backward follows from its operators");
    }
    if (imported->graph.masks_left_out > 0) {
        graph.notes.emplace_back(
            "attention masks that depend on nothing but sizes are left out, as transformers does in training "
            "when no "
            "token is padding");
    }
    graph.operators = [imported](const ModuleTree& tree, const Workload& workload) {
        return onnx::operators_of(*imported, tree, workload);
    };
    return graph;
}

}  // namespace

namespace builtin::importer {

extern const ImporterInfo onnx;
constinit const ImporterInfo onnx{
    .name = "an .onnx file",
    .help =
        "reads modules, parameters and operators of a file that torch.onnx.export has written; not its data",
    .recognises = [](const ImportSource& source) { return source.path.extension() == ".onnx"; },
    .read = read,
};

}  // namespace builtin::importer
}  // namespace fsdplan
