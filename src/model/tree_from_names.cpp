#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "model/attribute_path.hpp"
#include "model/stored_model.hpp"

namespace fsdplan {
namespace {

constexpr ClassIndex module_list{1};  // 0 is the plain Module

/// The number that ModuleList would give to a child, or -1.
std::int64_t position_in_list(std::string_view name) {
    std::int64_t value = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
    const bool canonical = error == std::errc() && end == name.data() + name.size() && value >= 0 &&
                           (name.front() != '0' || name.size() == 1);
    return canonical ? value : -1;
}

class TreeFromNames {
public:
    explicit TreeFromNames(std::size_t tensors) {
        const std::string base = "torch.nn.modules.module.Module";
        graph_.classes = {{base, {}}, {"torch.nn.modules.container.ModuleList", {base}}};
        graph_.tensors.reserve(tensors);
        graph_.modules.reserve(tensors);  // about as many: most modules have a weight or two
        module_of_path_.reserve(tensors);
        graph_.modules.emplace_back();
        path_.push_back({0, 0});
    }

    void add(StoredTensor stored) {
        const TensorIndex t{static_cast<std::int32_t>(graph_.tensors.size())};
        graph_.tensors.push_back(std::move(stored.tensor));
        if (!is_attribute_path(stored.name)) {
            graph_.modules.front().parameters.push_back({std::move(stored.name), t, true});
            ++odd_names_;
            return;
        }
        const std::size_t owner = enter(stored.name);
        graph_.modules[owner].parameters.push_back({stored.name.substr(path_.back().end), t, true});
        previous_ = std::move(stored.name);
    }

    ModelGraph finish() {
        for (std::size_t m = 0; m < graph_.modules.size(); ++m) {
            ModuleNode& node = graph_.modules[m];
            if (sort_numbers(node.children) && node.parameters.empty() && m > 0) {
                node.class_index = module_list;
            }
            sort_numbers(node.parameters);
        }
        name_list_members();
        graph_.classes_known = false;
        add_notes();
        return std::move(graph_);
    }

private:
    struct Step {
        std::size_t module = 0;
        std::size_t end = 0;  // characters of the name that lead here, with the dot
    };

    // The module that owns the tensor. Neighbours in a file mostly share their path, so only what differs
    // from the previous name is looked up.
    std::size_t enter(const std::string& name) {
        while (name.compare(0, path_.back().end, previous_, 0, path_.back().end) != 0) {
            path_.pop_back();
        }
        std::size_t dot = name.find('.', path_.back().end);
        while (dot != std::string::npos) {
            path_.push_back({module_at(name, path_.back(), dot), dot + 1});
            dot = name.find('.', dot + 1);
        }
        return path_.back().module;
    }

    std::size_t module_at(const std::string& name, Step parent, std::size_t dot) {
        const std::size_t next = graph_.modules.size();
        const auto [known, fresh] = module_of_path_.try_emplace(name.substr(0, dot), next);
        if (fresh) {
            graph_.modules.emplace_back();
            graph_.modules[parent.module].children.push_back(
                {name.substr(parent.end, dot - parent.end), ModuleIndex{static_cast<std::int32_t>(next)}});
        }
        return known->second;
    }

    /// Whether there are slots and all are numbered; then they are in order afterwards.
    template <class Slot>
    static bool sort_numbers(std::vector<Slot>& slots) {
        const auto number = [](const Slot& slot) { return position_in_list(slot.name); };
        const bool numbered =
            !slots.empty() && std::ranges::all_of(slots, [&](const Slot& s) { return number(s) >= 0; });
        if (numbered) {
            std::ranges::sort(slots, {}, number);
        }
        return numbered;
    }

    // Members of a list get a class of their own, so that a policy can name the repeated blocks.
    void name_list_members() {
        std::unordered_map<std::string, ClassIndex> member_class;
        for (const ModuleNode& parent : graph_.modules) {
            for (const ChildSlot& list : parent.children) {
                if (graph_.modules[at(list.module)].class_index != module_list) {
                    continue;
                }
                const ClassIndex next{static_cast<std::int32_t>(graph_.classes.size())};
                const auto [known, fresh] = member_class.try_emplace(list.name + "_member", next);
                if (fresh) {
                    graph_.classes.push_back({known->first, {graph_.classes.front().name}});
                }
                for (const ChildSlot& member : graph_.modules[at(list.module)].children) {
                    ClassIndex& class_index = graph_.modules[at(member.module)].class_index;
                    class_index = class_index == ClassIndex{} ? known->second : class_index;
                }
            }
        }
    }

    void add_notes() {
        graph_.notes.emplace_back(
            "rebuilt from tensor names: module classes are unknown and called Module, ModuleList or, for the "
            "members "
            "of a list such as layers, layers_member; no class name of PyTorch can be asked for");
        graph_.notes.emplace_back(
            "rebuilt from tensor names: ties are unknown, so a head that shares its weight with the "
            "embedding is "
            "either not here or counted twice; a config.json beside the file would tell");
        graph_.notes.emplace_back(
            "rebuilt from tensor names: buffers look like parameters and are counted as such, and what has "
            "no "
            "tensor is not seen");
        if (odd_names_ > 0) {
            graph_.notes.push_back(
                std::to_string(odd_names_) +
                " tensor names cannot be attribute paths of a module and stay whole at the "
                "root");
        }
    }

    ModelGraph graph_;
    std::unordered_map<std::string, std::size_t> module_of_path_;
    std::vector<Step> path_;  // of previous_
    std::string previous_;
    std::int64_t odd_names_ = 0;
};

}  // namespace

ModelGraph tree_from_names(std::vector<StoredTensor> tensors) {
    TreeFromNames tree(tensors.size());
    for (StoredTensor& stored : tensors) {
        tree.add(std::move(stored));
    }
    return tree.finish();
}

}  // namespace fsdplan
