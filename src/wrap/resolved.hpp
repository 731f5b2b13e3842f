#pragma once

#include <vector>

#include "fsdplan/wrap.hpp"

namespace fsdplan {

/// WrapOptions with its names looked up in one tree.
struct Resolved {
    const WrapOptions* options = nullptr;
    std::vector<char> ignored_module;  ///< per row: an ignored module or below one
    std::vector<char> ignored_tensor;  ///< per tensor: not managed and not counted
    ClassSet keep_full_precision;      ///< empty set unless mixed precision is given

    bool ignored(ModuleIndex m) const { return ignored_module[at(m)] != 0; }
    bool ignored(TensorIndex t) const { return ignored_tensor[at(t)] != 0; }
};

/// Throws Error(input) for paths that the model does not have, with the nearest names.
Resolved resolve(const ModuleTree& tree, const WrapOptions& options);

/// The module at a path; throws Error(input) at `where` with the nearest paths.
ModuleIndex require_module(const ModuleTree& tree, std::string_view path, std::string_view where);

/// The parameter at a path; throws Error(input) at `where` with the nearest paths.
TensorIndex require_parameter(const ModuleTree& tree, std::string_view path, std::string_view where);

}  // namespace fsdplan
