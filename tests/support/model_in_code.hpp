#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fsdplan/model.hpp"

// Small models written down in tests.
namespace fsdplan::test {

struct Weight {
    std::string name;
    std::vector<std::int64_t> shape;
    DType dtype = DType::float32;
    bool requires_grad = true;
};

/// Builds a graph module by module.
class ModelInCode {
public:
    explicit ModelInCode(const std::string& root_class) {
        graph_.name = "test";
        graph_.source = "written in a test";
        graph_.root = add_module(root_class);
    }

    ModuleIndex root() const { return graph_.root; }

    ModuleIndex child(ModuleIndex parent, const std::string& name, const std::string& class_name,
                      const std::vector<Weight>& weights = {}) {
        const ModuleIndex m = add_module(class_name);
        graph_.modules[at(parent)].children.push_back({name, m});
        for (const Weight& weight : weights) {
            Tensor tensor{
                .shape = weight.shape, .dtype = weight.dtype, .requires_grad = weight.requires_grad};
            for (const std::int64_t size : weight.shape) {
                tensor.numel *= size;
            }
            graph_.modules[at(m)].parameters.push_back(
                {weight.name, static_cast<TensorIndex>(graph_.tensors.size())});
            graph_.tensors.push_back(tensor);
        }
        return m;
    }

    ModelGraph& graph() { return graph_; }

private:
    ModuleIndex add_module(const std::string& class_name) {
        std::size_t c = 0;
        while (c < graph_.classes.size() && graph_.classes[c].name != class_name) {
            ++c;
        }
        if (c == graph_.classes.size()) {
            graph_.classes.push_back({class_name, {"torch.nn.modules.module.Module"}});
        }
        graph_.modules.push_back({.class_index = static_cast<ClassIndex>(c)});
        return static_cast<ModuleIndex>(graph_.modules.size() - 1);
    }

    ModelGraph graph_;
};

inline const std::string linear = "torch.nn.modules.linear.Linear";

/// `blocks` blocks of one `width` x `width` linear layer each, in a list below the root.
inline ModelInCode chain(int blocks, std::int64_t width, DType dtype = DType::float32) {
    ModelInCode model("toys.Chain");
    const ModuleIndex list = model.child(model.root(), "layers", "torch.nn.modules.container.ModuleList");
    for (int i = 0; i < blocks; ++i) {
        const ModuleIndex block = model.child(list, std::to_string(i), "toys.Block");
        model.child(block, "fc", linear, {{"weight", {width, width}, dtype}});
    }
    return model;
}

}  // namespace fsdplan::test
