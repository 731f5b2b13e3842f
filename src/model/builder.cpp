#include "model/builder.hpp"

#include <algorithm>

namespace fsdplan {

GraphBuilder::GraphBuilder(std::string name, std::string source) {
    graph_.name = std::move(name);
    graph_.source = std::move(source);
}

Scope GraphBuilder::root(const ModuleClass& module_class) {
    FSDPLAN_ASSERT(graph_.modules.empty(), "a model has one root, and it comes first");
    return {this, add_module(module_class)};
}

ModelGraph GraphBuilder::finish() {
    // Parameters that a tie or a drop left without an owner are gone, as in PyTorch.
    std::vector<std::int32_t> kept(graph_.tensors.size(), -1);
    std::vector<Tensor> tensors;
    const auto keep = [&](std::vector<TensorSlot>& slots) {
        for (TensorSlot& slot : slots) {
            std::int32_t& index = kept[at(slot.tensor)];
            if (index < 0) {
                index = static_cast<std::int32_t>(tensors.size());
                tensors.push_back(std::move(graph_.tensors[at(slot.tensor)]));
            }
            slot.tensor = TensorIndex{index};
        }
    };
    for (ModuleNode& node : graph_.modules) {
        keep(node.parameters);
        keep(node.buffers);
    }
    graph_.tensors = std::move(tensors);
    return std::move(graph_);
}

ModuleIndex GraphBuilder::add_module(const ModuleClass& module_class) {
    if (graph_.modules.size() == most_modules) {
        throw Error(
            ErrorKind::input, graph_.name,
            "more than " + std::to_string(most_modules) + " modules; expected a model that can exist");
    }
    auto found = classes_.find(module_class.name);
    if (found == classes_.end()) {
        const ClassIndex index{static_cast<std::int32_t>(graph_.classes.size())};
        graph_.classes.push_back(module_class);
        found = classes_.emplace(module_class.name, index).first;
    }
    ModuleNode node;
    node.class_index = found->second;
    graph_.modules.push_back(std::move(node));
    return ModuleIndex{static_cast<std::int32_t>(graph_.modules.size() - 1)};
}

TensorIndex GraphBuilder::add_tensor(std::vector<std::int64_t> shape, DType dtype, bool requires_grad) {
    Tensor tensor;
    tensor.shape = std::move(shape);
    tensor.dtype = dtype;
    tensor.requires_grad = requires_grad;
    for (const std::int64_t size : tensor.shape) {
        tensor.numel = checked_mul(tensor.numel, size, graph_.name);
    }
    total_ = checked_add(total_, tensor.numel, graph_.name);
    graph_.tensors.push_back(std::move(tensor));
    return TensorIndex{static_cast<std::int32_t>(graph_.tensors.size() - 1)};
}

Scope Scope::child(std::string name, const ModuleClass& module_class) const {
    const ModuleIndex index = builder_->add_module(module_class);
    node().children.push_back({std::move(name), index});
    return {builder_, index};
}

void Scope::share(std::string name, Scope module) const {
    node().children.push_back({std::move(name), module.module_});
}

void Scope::parameter(std::string name, std::vector<std::int64_t> shape, std::optional<DType> dtype) const {
    const TensorIndex t = builder_->add_tensor(std::move(shape), dtype.value_or(builder_->dtype_), true);
    node().parameters.push_back({std::move(name), t});
}

void Scope::buffer(std::string name, std::vector<std::int64_t> shape, std::optional<DType> dtype,
                   bool persistent) const {
    const TensorIndex t = builder_->add_tensor(std::move(shape), dtype.value_or(builder_->dtype_), false);
    node().buffers.push_back({std::move(name), t, persistent});
}

void Scope::tie(std::string_view name, Scope other, std::string_view other_name) const {
    const std::vector<TensorSlot>& theirs = other.node().parameters;
    const auto source = std::ranges::find(theirs, other_name, &TensorSlot::name);
    FSDPLAN_ASSERT(source != theirs.end(), "a family ties to a parameter that it has built");
    const TensorIndex tensor = source->tensor;
    std::vector<TensorSlot>& ours = node().parameters;
    const auto slot = std::ranges::find(ours, name, &TensorSlot::name);
    if (slot != ours.end()) {
        slot->tensor = tensor;
    } else {
        ours.push_back({std::string(name), tensor});
    }
}

void Scope::drop_parameter(std::string_view name) const {
    std::erase_if(node().parameters, [name](const TensorSlot& slot) { return slot.name == name; });
}

Scope Scope::operator[](std::string_view child_name) const {
    const std::optional<Scope> child = find(child_name);
    FSDPLAN_ASSERT(child.has_value(), "a family asks for a child that it has built");
    return *child;
}

std::optional<Scope> Scope::find(std::string_view child_name) const {
    const std::vector<ChildSlot>& slots = node().children;
    const auto slot = std::ranges::find(slots, child_name, &ChildSlot::name);
    return slot == slots.end() ? std::nullopt : std::optional(Scope(builder_, slot->module));
}

const std::vector<std::int64_t>& Scope::shape(std::string_view parameter_name) const {
    const std::vector<TensorSlot>& slots = node().parameters;
    const auto slot = std::ranges::find(slots, parameter_name, &TensorSlot::name);
    FSDPLAN_ASSERT(slot != slots.end(), "a family asks for a parameter that it has built");
    return builder_->graph_.tensors[at(slot->tensor)].shape;
}

void Scope::freeze() const {
    for (const TensorSlot& slot : node().parameters) {
        builder_->graph_.tensors[at(slot.tensor)].requires_grad = false;
    }
}

}  // namespace fsdplan
