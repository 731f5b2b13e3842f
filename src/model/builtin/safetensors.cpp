#include "model/importer.hpp"
#include "model/stored_model.hpp"

namespace fsdplan {
namespace {

ModelGraph read(const ImportSource& source, const ImportOptions& options) {
    SafetensorsHeader header = read_safetensors_header(source.path, source.shown);
    const std::size_t tensors = header.tensors.size();
    ModelGraph graph =
        stored_model(std::move(header.tensors), source.path.parent_path(), source.shown, options);
    note_missing_data(tensors, header.declared, header.present, graph);
    if (tensors == 0) {
        graph.notes.emplace_back("the file has no tensors");
    }
    return graph;
}

bool recognises(const ImportSource& source) {
    constexpr std::size_t length_bytes = 8;
    const bool brace_after_length = source.head.size() > length_bytes && source.head[length_bytes] == '{' &&
                                    source.head[length_bytes - 1] == '\0';
    return source.path.extension() == ".safetensors" || brace_after_length;
}

}  // namespace

namespace builtin::importer {

extern const ImporterInfo safetensors;
constinit const ImporterInfo safetensors{
    .name = "a .safetensors file",
    .help = "reads the header of a safetensors file; with its config.json beside it, classes and ties too",
    .recognises = recognises,
    .read = read,
};

}  // namespace builtin::importer
}  // namespace fsdplan
