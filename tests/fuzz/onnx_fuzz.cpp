#include "fsdplan/operators.hpp"
#include "input_file.hpp"
#include "look_at.hpp"

// Any bytes as an ONNX file, whose operators are played too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string file = fsdplan::fuzz::input_file(data, size);
    if (fsdplan::fuzz::look_at(file) != 0) {
        return -1;
    }
    const fsdplan::ModelGraph graph = fsdplan::import_model(file);
    const fsdplan::ModuleTree tree = fsdplan::flatten(graph);
    static_cast<void>(graph.operators(
        tree, {.batch = graph.recorded_batch.value_or(2), .sequence = graph.longest_sequence.value_or(8)}));
    return 0;
}
