#pragma once

#include <span>

#include "fsdplan/operators.hpp"
#include "model/nested_calls.hpp"

namespace fsdplan {

/// Cuts the events of a graph into parts. `forward_call`: the innermost call under which each forward event
/// happens, -1 for the loss. `backward_of`: the forward event whose backward each backward event belongs to;
/// backward goes through parts from the last to the first, so that an event of a later part that comes late
/// stays where it is.
void cut_into_parts(OperatorGraph& graph, std::span<const NestedCall> calls,
                    std::span<const std::int32_t> forward_call, std::span<const std::int32_t> backward_of);

/// Takes for the inputs of each call what the program holds when it begins.
void pass_what_is_held(OperatorGraph& graph);

}  // namespace fsdplan
