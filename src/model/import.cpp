#include <algorithm>

#include "base/embedded.hpp"
#include "base/file.hpp"
#include "model/importer.hpp"
#include "model/library.hpp"

namespace fsdplan {
namespace {

constexpr std::size_t head_size = 4096;

ImportSource source_of(const std::filesystem::path& path, std::string shown) {
    return {.path = path, .shown = std::move(shown), .head = read_head(path, head_size)};
}

/// The file of a model folder that describes it best: a configuration knows classes and ties.
std::filesystem::path model_file_in(const std::filesystem::path& folder) {
    for (const char* name : {"config.json", "model.safetensors.index.json", "model.safetensors"}) {
        if (std::filesystem::is_regular_file(folder / name)) {
            return folder / name;
        }
    }
    throw Error(ErrorKind::input, folder.string(),
                "is a folder without config.json, model.safetensors.index.json or model.safetensors");
}

ModelGraph read_path(const std::filesystem::path& path, const std::string& shown,
                     const ImportOptions& options) {
    const ImportSource source = source_of(path, shown);
    for (const ImporterInfo* importer : builtin::importers()) {
        if (importer->recognises(source)) {
            return importer->read(source, options);
        }
    }
    std::string formats;
    for (const ImporterInfo* importer : builtin::importers()) {
        formats += (formats.empty() ? "" : ", ") + std::string(importer->name);
    }
    throw Error(ErrorKind::input, shown, "not a model file that is known here; expected one of: " + formats);
}

/// Totals are exact in a double and in JavaScript, whatever reads them.
ModelGraph within_limits(ModelGraph graph, const std::string& shown) {
    std::int64_t bytes = 0;
    for (const Tensor& tensor : graph.tensors) {
        bytes += std::min(bytes_of(tensor.numel, tensor.dtype).count, largest_total + 1);
        if (bytes > largest_total) {
            throw Error(ErrorKind::input, shown,
                        "holds more than 2^53 bytes; expected a model that can exist");
        }
    }
    return graph;
}

}  // namespace

ModelGraph import_model(const std::string& what, const ImportOptions& options) {
    std::error_code ignored;
    const std::filesystem::path path(what);
    if (std::filesystem::is_directory(path, ignored)) {
        const std::filesystem::path file = model_file_in(path);
        return within_limits(read_path(file, file.string(), options), what);
    }
    if (std::filesystem::exists(path, ignored)) {
        return within_limits(read_path(path, what, options), what);
    }
    const LibraryEntry entry = library_entry(what);
    ModelGraph graph =
        read_hf_config(entry.config, "models/nets/" + std::string(entry.folder) + "/config.json", options);
    graph.name = what;
    return graph;
}

}  // namespace fsdplan
