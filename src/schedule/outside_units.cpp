#include "schedule/outside_units.hpp"

#include <algorithm>

#include "schedule/optimizer_step.hpp"

namespace fsdplan {

void allocate_outside_units(const ModuleTree& tree, const TrainingJob& job,
                            std::span<const std::int32_t> unit_of_tensor, bool trains, Emitter& emit) {
    std::vector<char> seen(tree.tensors.size(), 0);
    for (const TensorIndex t : tree.parameter) {
        if (seen[at(t)] != 0 || unit_of_tensor[at(t)] >= 0) {
            continue;
        }
        seen[at(t)] = 1;
        const Tensor& tensor = tree.tensors[at(t)];
        const Buffer whole{.bytes = bytes_of(tensor.numel, tensor.dtype).count,
                           .category = Category::replicated};
        emit.allocate(emit.buffer(whole));
        if (tensor.requires_grad && trains) {
            emit.allocate(emit.buffer(whole));  // gradient
            create_states(emit, job, {.numel = tensor.numel, .dtype = tensor.dtype, .shape = tensor.shape},
                          -1, Category::replicated);
        }
    }
}

std::vector<std::int32_t> allocate_module_buffers(const ModuleTree& tree, std::optional<DType> dtype,
                                                  Emitter& emit) {
    std::vector<TensorIndex> distinct = tree.buffer;
    std::ranges::sort(distinct);
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    std::vector<std::int32_t> out;
    for (const TensorIndex t : distinct) {
        const Tensor& tensor = tree.tensors[at(t)];
        const DType held = is_floating_point(tensor.dtype) ? dtype.value_or(tensor.dtype) : tensor.dtype;
        out.push_back(
            emit.buffer({.bytes = bytes_of(tensor.numel, held).count, .category = Category::module_buffer}));
        emit.allocate(out.back());
    }
    return out;
}

}  // namespace fsdplan
