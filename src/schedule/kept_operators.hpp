#pragma once

#include <vector>

#include "fsdplan/job.hpp"
#include "fsdplan/operators.hpp"
#include "schedule/forward_program.hpp"

namespace fsdplan {

/// Operators of checkpointed regions whose results are kept instead of computed again, and those results.
struct KeptOperators {
    std::vector<char> operators;  ///< by row of OperatorGraph::operators
    std::vector<char> storages;
};

/// Mode::selective: every other matrix product of a region, from the first on, and attention. Nothing in
/// other modes. Source: the policy that torchtitan hands to create_selective_checkpoint_contexts.
KeptOperators kept_operators(const OperatorGraph& graph, const ForwardProgram& program,
                             const ModuleTree& tree, const ActivationCheckpointing& checkpointing);

}  // namespace fsdplan
