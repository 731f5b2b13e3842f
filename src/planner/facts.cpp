#include <vector>

#include "planner/estimates.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t assumed_experts_per_token = 2;

std::int64_t bytes_of_buffers(const ModelGraph& model) {
    std::vector<char> seen(model.tensors.size(), 0);
    std::int64_t bytes = 0;
    for (const ModuleNode& node : model.modules) {
        for (const TensorSlot& slot : node.buffers) {
            if (seen[at(slot.tensor)] == 0) {
                seen[at(slot.tensor)] = 1;
                bytes += bytes_of(model.tensors[at(slot.tensor)].numel, model.tensors[at(slot.tensor)].dtype)
                             .count;
            }
        }
    }
    return bytes;
}

}  // namespace

ModelFacts facts_of(const ModelGraph& model, const ModuleTree& tree) {
    return {.shape = shape_of(tree),
            .buffer_bytes = bytes_of_buffers(model),
            .experts_per_token = model.experts_per_token.value_or(assumed_experts_per_token),
            .experts_per_token_known = model.experts_per_token.has_value()};
}

}  // namespace fsdplan
