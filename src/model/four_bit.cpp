#include "model/four_bit.hpp"

namespace fsdplan {
namespace {

constexpr std::int64_t weight_bits = 4;
constexpr std::int64_t weights_a_scale = 64;
constexpr std::int64_t scales_a_scale = 256;
const char* const linear = "torch.nn.modules.linear.Linear";

Tensor flat(std::int64_t numel, DType dtype) {
    return {.shape = {numel}, .dtype = dtype, .requires_grad = false, .numel = numel};
}

class Packing {
public:
    Packing(ModelGraph graph, DType storage) : graph_(std::move(graph)), storage_(storage) {
        class_ = static_cast<ClassIndex>(graph_.classes.size());
        graph_.classes.push_back({"bitsandbytes.nn.modules." + std::string(four_bit_class),
                                  {linear, "torch.nn.modules.module.Module"}});
    }

    void visit(ModuleIndex m) {
        ModuleNode& module = graph_.modules[at(m)];
        if (graph_.classes[at(module.class_index)].name != linear || module.parameters.empty()) {
            return;
        }
        Tensor& weight = graph_.tensors[at(module.parameters.front().tensor)];
        if (weight.requires_grad) {
            return;
        }
        const std::int64_t scales = ceil_div(weight.numel, weights_a_scale);
        weight.numel = ceil_div(weight.numel * weight_bits, bits(storage_));
        weight.shape = {weight.numel, 1};
        weight.dtype = storage_;
        module.class_index = class_;
        add_buffer(module, "absmax", flat(scales, DType::uint8));
        add_buffer(module, "nested_absmax", flat(ceil_div(scales, scales_a_scale), DType::float32));
    }

    ModelGraph take() { return std::move(graph_); }
    const ModelGraph& graph() const { return graph_; }

private:
    void add_buffer(ModuleNode& module, std::string name, Tensor tensor) {
        module.buffers.push_back(
            {.name = std::move(name), .tensor = static_cast<TensorIndex>(graph_.tensors.size())});
        graph_.tensors.push_back(std::move(tensor));
    }

    ModelGraph graph_;
    DType storage_;
    ClassIndex class_{};
};

}  // namespace

ModelGraph with_four_bit_weights(ModelGraph graph, std::string_view kept, DType storage) {
    Packing packing(std::move(graph), storage);
    for (std::size_t parent = 0; parent < packing.graph().modules.size(); ++parent) {
        for (const ChildSlot& slot : packing.graph().modules[parent].children) {
            if (slot.name != kept) {
                packing.visit(slot.module);
            }
        }
    }
    return packing.take();
}

}  // namespace fsdplan
