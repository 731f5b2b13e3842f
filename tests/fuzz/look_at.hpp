#pragma once

#include <string>

#include "fsdplan/model.hpp"
#include "model/inventory.hpp"

namespace fsdplan::fuzz {

/// Imports a file and prints all that `inspect` prints. A model or an Error: nothing crashes, hangs or takes
/// all memory. Returns what the fuzzer wants to know: whether the input is worth keeping.
inline int look_at(const std::string& file) {
    try {
        const ModelGraph graph = import_model(file);
        const ModuleTree tree = flatten(graph);
        const Inventory inventory = inventory_of(graph, tree);
        static_cast<void>(inventory_text(inventory) + inventory_json(inventory) + tree_text(tree));
    } catch (const Error&) {
        return -1;  // refused with a reason; not worth keeping as a seed
    }
    return 0;
}

}  // namespace fsdplan::fuzz
