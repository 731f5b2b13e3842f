#include <cstdio>
#include <fsdplan/model.hpp>

// Crosses every library of the model stage: the embedded library of models, the importers, the JSON reader.
int main() {
    const fsdplan::ModuleTree tree = fsdplan::flatten(fsdplan::import_model("llama3-8b"));
    std::printf("%zu modules\n", tree.size());
}
