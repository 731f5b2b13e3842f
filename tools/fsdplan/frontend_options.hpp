#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fsdplan/frontend.hpp"

namespace fsdplan::cli {

class Arguments;

/// Settings files of other tools.
struct FrontendOptions {
    std::vector<std::optional<std::string>> files;  ///< one for each of builtin::frontends()

    void declare(Arguments& arguments);
    /// What the given file decides for this model on so many ranks, if one is given; `job` is what it leaves
    /// open. Throws Error(input) when several are given.
    std::optional<FrontendPlan> read(const ModelGraph& model, const ModuleTree& tree, const TrainingJob& job,
                                     std::int64_t ranks) const;
};

/// The graph with its trainable parameters of floating point in `dtype`.
ModelGraph with_trainable_dtype(ModelGraph graph, DType dtype);

}  // namespace fsdplan::cli
