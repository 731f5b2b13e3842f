#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fsdplan/model.hpp"

// What is in a model: the answer of `fsdplan inspect`.
namespace fsdplan {

struct TensorTotals {
    std::int64_t tensors = 0;
    std::int64_t numel = 0;
    Bytes bytes;
};

struct DTypeTotals {
    DType dtype{};
    TensorTotals totals;
};

struct ClassTotals {
    std::string name;  ///< full class name
    std::int64_t instances = 0;
    std::int64_t own_numel = 0;  ///< of parameters registered on the instances themselves, a tied one once
};

/// Equal siblings with consecutive numbers.
struct RepeatedBlock {
    std::string path;  ///< "model.layers.0-31"; inside other blocks "model.layers.0-31.mlp.experts.0-7"
    std::string class_name;
    std::int64_t count = 0;  ///< of all, the outer blocks' repetitions included
    std::int64_t numel = 0;  ///< of one
};

struct NoSplitClass {
    std::string name;            ///< as the model lists it
    std::int64_t instances = 0;  ///< 0: absent from this model
};

/// Distinct tensors and modules count once, however often they are registered.
struct Inventory {
    std::string name;
    std::string source;
    bool classes_known = true;

    TensorTotals parameters;
    std::int64_t trainable_numel = 0;
    std::vector<DTypeTotals> by_dtype;  ///< of the parameters, the largest first
    TensorTotals frozen;
    TensorTotals buffers;
    Bytes non_persistent;  ///< the part of the buffers that a state dict leaves out

    std::int64_t modules = 0;
    std::int64_t depth = 0;            ///< of the deepest module; the root has 0
    std::vector<ClassTotals> classes;  ///< the largest first
    std::vector<RepeatedBlock> blocks;
    std::vector<std::vector<std::string>> tied;  ///< names of one parameter that is registered twice or more
    std::vector<std::vector<std::string>> shared_modules;  ///< paths of one module in several slots

    std::vector<NoSplitClass> no_split;
    std::optional<std::int64_t> longest_sequence;
    std::vector<std::string> notes;
};

/// `tree` is flatten(graph).
Inventory inventory_of(const ModelGraph& graph, const ModuleTree& tree);

/// A screen of text; the notes are not in it.
std::string inventory_text(const Inventory& inventory);
/// One JSON object.
std::string inventory_json(const Inventory& inventory);
/// The module tree, one module a line; equal numbered siblings share one.
std::string tree_text(const ModuleTree& tree);

/// Neighbouring children of one module.
struct ChildRun {
    std::size_t first = 0;  ///< slot
    std::size_t count = 1;
};

/// The slots of `m` in order; a run longer than one holds equal modules with consecutive numbers as names.
std::vector<ChildRun> runs_of_children(const ModuleTree& tree, ModuleIndex m);

/// "0-31" for such a run, else the slot's name.
std::string run_name(const ModuleTree& tree, ModuleIndex m, ChildRun run);

}  // namespace fsdplan
