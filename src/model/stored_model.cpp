#include "model/stored_model.hpp"

#include <system_error>

#include "base/file.hpp"
#include "base/json.hpp"
#include "model/importer.hpp"

namespace fsdplan {
namespace {

void cast(ModelGraph& graph, DType dtype) {
    for (Tensor& tensor : graph.tensors) {
        tensor.dtype = is_floating_point(tensor.dtype) ? dtype : tensor.dtype;
    }
}

ModelGraph rebuilt(std::vector<StoredTensor> tensors, const ImportOptions& options) {
    ModelGraph graph = tree_from_names(std::move(tensors));
    if (options.dtype) {
        cast(graph, *options.dtype);
    }
    graph.source = "tensor names of a checkpoint";
    return graph;
}

}  // namespace

ModelGraph stored_model(std::vector<StoredTensor> tensors, const std::filesystem::path& folder,
                        const std::string& shown, const ImportOptions& options) {
    std::int64_t total = 0;
    for (const StoredTensor& stored : tensors) {
        total = checked_add(total, stored.tensor.numel, shown);
    }
    const std::filesystem::path config = folder / "config.json";
    std::error_code ignored;
    ModelGraph graph;
    std::string refusal;
    if (std::filesystem::is_regular_file(config, ignored)) {
        try {
            graph = read_hf_config(read_text(config), config.string(), options);
        } catch (const Error& error) {
            refusal = error.faults().front().where + ": " + error.faults().front().message;
        }
    }
    if (graph.modules.empty()) {
        graph = rebuilt(std::move(tensors), options);
    } else {
        match_checkpoint(tensors, shown, options, graph);
    }
    if (!refusal.empty()) {
        graph.notes.push_back("the config.json beside it could not be used: " + refusal);
    }
    graph.name = shown;
    return graph;
}

void note_missing_data(std::size_t tensors, Bytes declared, Bytes present, ModelGraph& graph) {
    if (present < declared) {
        graph.notes.push_back("data missing: " + std::to_string(tensors) + " tensors have " +
                              std::to_string(declared.count) + " bytes by the header, of which " +
                              std::to_string(present.count) + " are in the file; a plan needs none of them");
    }
}

std::string counted(std::span<const std::string> names, std::string_view what) {
    constexpr std::size_t shown = 3;
    std::string out = std::to_string(names.size()) + " " + std::string(what) + (names.size() == 1 ? "" : "s");
    for (std::size_t i = 0; i < std::min(shown, names.size()); ++i) {
        out += (i == 0 ? " (" : ", ") + json::quote(names[i]);
    }
    return out + (names.empty() ? "" : names.size() > shown ? ", …)" : ")");
}

}  // namespace fsdplan
