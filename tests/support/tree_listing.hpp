#pragma once

#include <map>
#include <string>
#include <vector>

#include "fsdplan/model.hpp"

// A model as lines of text, so that two trees can be compared name by name.
namespace fsdplan {

inline std::string describe_tensor(const Tensor& t) {
    std::string out = std::string(name(t.dtype)) + (t.requires_grad ? "" : " frozen") + " [";
    for (const std::int64_t size : t.shape) {
        out += std::to_string(size) + ",";
    }
    return out + "]";
}

/// One line a module slot and a tensor slot, in pre-order; a tied tensor names where it was met first.
inline std::vector<std::string> tree_listing(const ModelGraph& graph) {
    std::vector<std::string> out;
    std::map<TensorIndex, std::string> first_name;
    std::map<ModuleIndex, std::string> first_path;
    const auto list_tensors = [&](const std::string& path, const char* kind,
                                  const std::vector<TensorSlot>& slots) {
        for (const TensorSlot& slot : slots) {
            const std::string full = path + "." + slot.name;
            const auto [known, fresh] = first_name.try_emplace(slot.tensor, full);
            out.push_back(full + " " + kind + (slot.persistent ? " " : " non-persistent ") +
                          (fresh ? describe_tensor(graph.tensors[at(slot.tensor)]) : "= " + known->second));
        }
    };
    const auto visit = [&](const auto& self, ModuleIndex m, const std::string& path) -> void {
        const ModuleNode& node = graph.modules[at(m)];
        const auto [known, fresh] = first_path.try_emplace(m, path);
        if (!fresh) {
            out.push_back(path + " = " + known->second);
            return;
        }
        const ModuleClass& c = graph.classes[at(node.class_index)];
        std::string bases;
        for (const std::string& base : c.bases) {
            bases += " < " + base;
        }
        out.push_back(path + " " + c.name + bases);
        list_tensors(path, "parameter", node.parameters);
        list_tensors(path, "buffer", node.buffers);
        for (const ChildSlot& slot : node.children) {
            self(self, slot.module, path.empty() ? slot.name : path + "." + slot.name);
        }
    };
    visit(visit, graph.root, "");
    return out;
}

}  // namespace fsdplan
