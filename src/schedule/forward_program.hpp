#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fsdplan/model.hpp"
#include "fsdplan/operators.hpp"
#include "model/nested_calls.hpp"

// One forward of a model as calls of modules, and which call reads what: all that the order of backward
// follows from.
namespace fsdplan {

struct ForwardProgram {
    using Call = NestedCall;
    std::vector<Call> calls;
    std::vector<std::int32_t> source_begin;  ///< calls + 1
    std::vector<std::int32_t> source;        ///< earlier leaf calls; inputs of the model are left out
    std::vector<std::int32_t> output_from;   ///< leaf calls behind the loss
    /// Parameters that a leaf call computes with, calls + 1 and their list. A module's own parameters, if it
    /// is no leaf, count for the first leaf that it calls.
    std::vector<std::int32_t> parameter_begin;
    std::vector<TensorIndex> parameter;

    std::span<const std::int32_t> sources(std::int32_t call) const { return of(call, source_begin, source); }
    std::span<const TensorIndex> parameters(std::int32_t call) const {
        return of(call, parameter_begin, parameter);
    }
    /// True when call `inner` happens inside `outer`, or is it.
    bool inside(std::int32_t inner, std::int32_t outer) const {
        return inner >= outer && inner < calls[static_cast<std::size_t>(outer)].end;
    }

private:
    template <typename Item>
    static std::span<const Item> of(std::int32_t call, const std::vector<std::int32_t>& begin,
                                    const std::vector<Item>& items) {
        const auto at = static_cast<std::size_t>(call);
        return {items.data() + begin[at], items.data() + begin[at + 1]};
    }
};

/// The calls that were recorded or described; without them every module is called once in the order of
/// registration, and each leaf reads the one before. `unread`: parameters that no computation uses. Which
/// parameters of modules that are not called are read all the same, only `operators` can say; null: unknown.
ForwardProgram forward_program(const ModuleTree& tree, const ForwardCalls& recorded,
                               std::span<const TensorIndex> unread = {},
                               const OperatorGraph* operators = nullptr);

}  // namespace fsdplan
