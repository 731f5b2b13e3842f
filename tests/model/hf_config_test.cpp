#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "fsdplan/model.hpp"

// The tree built from a config.json against the tree of the real model, name by name.
namespace fsdplan {
namespace {

std::string describe(const Tensor& t) {
    std::string out = std::string(name(t.dtype)) + (t.requires_grad ? "" : " frozen") + " [";
    for (const std::int64_t size : t.shape) {
        out += std::to_string(size) + ",";
    }
    return out + "]";
}

/// One line a module slot and a tensor slot, in pre-order; a tied tensor names where it was met first.
std::vector<std::string> listing(const ModelGraph& graph) {
    std::vector<std::string> out;
    std::map<TensorIndex, std::string> first_name;
    std::map<ModuleIndex, std::string> first_path;
    const auto list_tensors = [&](const std::string& path, const char* kind,
                                  const std::vector<TensorSlot>& slots) {
        for (const TensorSlot& slot : slots) {
            const std::string full = path + "." + slot.name;
            const auto [known, fresh] = first_name.try_emplace(slot.tensor, full);
            out.push_back(full + " " + kind + (slot.persistent ? " " : " non-persistent ") +
                          (fresh ? describe(graph.tensors[at(slot.tensor)]) : "= " + known->second));
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

std::vector<std::filesystem::path> recorded_trees() {
    std::vector<std::filesystem::path> out;
    for (const auto& entry : std::filesystem::directory_iterator(FSDPLAN_TEST_DATA "/golden/wrap")) {
        if (entry.path().filename().string().find(".tree.json") != std::string::npos) {
            out.push_back(entry.path());
        }
    }
    std::sort(out.begin(), out.end());
    return out;
}

TEST(HuggingFaceConfig, BuildsTheTreesThatTransformersBuilds) {
    int compared = 0;
    for (const std::filesystem::path& path : recorded_trees()) {
        const ModelGraph recorded = import_model(path.string());
        if (!recorded.source.starts_with("transformers")) {
            continue;
        }
        SCOPED_TRACE(recorded.name);
        ModelGraph built;
        try {
            built = import_model(recorded.name);
        } catch (const Error& error) {
            ADD_FAILURE() << error.what();
            continue;
        }
        const std::vector<std::string> want = listing(recorded);
        const std::vector<std::string> got = listing(built);
        for (std::size_t i = 0; i < std::max(want.size(), got.size()); ++i) {
            const std::string w = i < want.size() ? want[i] : "(nothing)";
            const std::string g = i < got.size() ? got[i] : "(nothing)";
            if (w != g) {
                ADD_FAILURE() << "line " << i << "\n  recorded " << w << "\n  built    " << g;
                break;
            }
        }
        ++compared;
    }
    EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace fsdplan
