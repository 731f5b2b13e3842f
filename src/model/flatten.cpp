#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "model/count.hpp"

namespace fsdplan {
namespace {

constexpr std::int32_t none = -1;
// torch walks modules by recursion, and Python allows a thousand calls; ours may recurse as well, then.
constexpr std::size_t deepest_model = 1000;

// First visits in pre-order: which row each module of the graph becomes, and the row structure.
class Rows {
public:
    Rows(const ModelGraph& graph, ModuleTree& tree) : graph_(graph), tree_(tree) {
        row_of_.assign(graph.modules.size(), none);
        on_path_.assign(graph.modules.size(), 0);
    }

    std::vector<std::int32_t> build() {
        struct Frame {
            ModuleIndex module;
            std::int32_t row;
            std::size_t next_slot;
        };
        std::vector<Frame> path;  // explicit: the depth comes from the file
        path.push_back({graph_.root, enter(graph_.root, none), 0});
        while (!path.empty()) {
            Frame& top = path.back();
            const std::vector<ChildSlot>& slots = graph_.modules[at(top.module)].children;
            if (top.next_slot == slots.size()) {
                tree_.subtree_end[static_cast<std::size_t>(top.row)] =
                    static_cast<std::int32_t>(tree_.size());
                on_path_[at(top.module)] = 0;
                path.pop_back();
                continue;
            }
            const ModuleIndex child = slots[top.next_slot++].module;
            if (on_path_[at(child)] != 0) {
                throw Error(ErrorKind::input, graph_.name,
                            "the module \"" + slots[top.next_slot - 1].name + "\" contains itself (a cycle)");
            }
            if (path.size() == deepest_model) {
                throw Error(ErrorKind::input, graph_.name,
                            "modules are nested deeper than " + std::to_string(deepest_model) +
                                " levels, which no PyTorch model can be");
            }
            if (row_of_[at(child)] != none) {
                tree_.has_shared_modules = true;
                tree_.has_several_parents |=
                    tree_.parent[static_cast<std::size_t>(row_of_[at(child)])] != top.row;
            } else {
                // Python gives up at a thousand frames, so torch could not walk such a model either.
                constexpr std::size_t deepest = 1000;
                if (path.size() > deepest) {
                    throw Error(ErrorKind::input, graph_.name,
                                "modules are nested deeper than " + std::to_string(deepest) + " levels");
                }
                const std::int32_t parent = top.row;
                path.push_back({child, enter(child, parent), 0});
            }
        }
        return std::move(row_of_);
    }

private:
    std::int32_t enter(ModuleIndex module, std::int32_t parent) {
        const auto row = static_cast<std::int32_t>(tree_.size());
        row_of_[at(module)] = row;
        on_path_[at(module)] = 1;
        tree_.parent.push_back(parent);
        tree_.subtree_end.push_back(row + 1);
        tree_.class_of.push_back(graph_.modules[at(module)].class_index);
        return row;
    }

    const ModelGraph& graph_;
    ModuleTree& tree_;
    std::vector<std::int32_t> row_of_;
    std::vector<char> on_path_;
};

void fill_slots(const ModelGraph& graph, const std::vector<std::int32_t>& row_of, ModuleTree& tree) {
    std::vector<const ModuleNode*> node_of(tree.size(), nullptr);
    for (std::size_t i = 0; i < row_of.size(); ++i) {
        if (row_of[i] != none) {
            node_of[static_cast<std::size_t>(row_of[i])] = &graph.modules[i];
        }
    }
    std::vector<char> registered(graph.tensors.size(), 0);
    tree.child_begin.push_back(0);
    tree.parameter_begin.push_back(0);
    tree.buffer_begin.push_back(0);
    for (const ModuleNode* node : node_of) {
        for (const ChildSlot& slot : node->children) {
            tree.child.push_back(ModuleIndex{row_of[at(slot.module)]});
            tree.child_name.push_back(slot.name);
        }
        for (const TensorSlot& slot : node->parameters) {
            tree.parameter.push_back(slot.tensor);
            tree.parameter_name.push_back(slot.name);
            tree.has_tied_parameters |= registered[at(slot.tensor)] != 0;
            registered[at(slot.tensor)] = 1;
            tree.has_uninitialized |= graph.tensors[at(slot.tensor)].uninitialized;
        }
        for (const TensorSlot& slot : node->buffers) {
            tree.buffer.push_back(slot.tensor);
        }
        tree.buffer_begin.push_back(static_cast<std::int32_t>(tree.buffer.size()));
        tree.child_begin.push_back(static_cast<std::int32_t>(tree.child.size()));
        tree.parameter_begin.push_back(static_cast<std::int32_t>(tree.parameter.size()));
    }
}

// Numbers equal subtrees alike. A module that holds a tied tensor, or is shared, is like no other.
void number_shapes(ModuleTree& tree) {
    std::vector<std::int32_t> registrations(tree.tensors.size(), 0);
    for (const TensorIndex t : tree.parameter) {
        ++registrations[at(t)];
    }
    std::vector<std::int32_t> slots_to(tree.size(), 0);
    for (const ModuleIndex c : tree.child) {
        ++slots_to[at(c)];
    }
    using TensorKey = std::tuple<std::int64_t, DType, bool, bool, std::size_t>;
    struct Key {
        ClassIndex class_index;
        std::int32_t unique;
        std::vector<std::int32_t> children;
        std::vector<TensorKey> tensors;
        auto operator<=>(const Key&) const = default;
    };
    std::map<Key, std::int32_t> known;
    tree.shape.assign(tree.size(), 0);
    for (std::size_t m = tree.size(); m-- > 0;) {
        const ModuleIndex module{static_cast<std::int32_t>(m)};
        Key key{tree.class_of[m], none, {}, {}};
        for (const ModuleIndex c : tree.children(module)) {
            key.children.push_back(tree.shape[at(c)]);
            if (slots_to[at(c)] > 1) {
                key.unique = static_cast<std::int32_t>(m);
            }
        }
        for (const TensorIndex t : tree.parameters(module)) {
            const Tensor& tensor = tree.tensors[at(t)];
            key.tensors.emplace_back(tensor.numel, tensor.dtype, tensor.requires_grad, tensor.uninitialized,
                                     tensor.shape.size());
            if (registrations[at(t)] > 1) {
                key.unique = static_cast<std::int32_t>(m);
            }
        }
        const auto [entry, added] = known.try_emplace(std::move(key), tree.shapes);
        tree.shapes += added ? 1 : 0;
        tree.shape[m] = entry->second;
    }
}

}  // namespace

ModuleTree flatten(const ModelGraph& graph) {
    ModuleTree tree;
    tree.name = graph.name;
    tree.classes = graph.classes;
    tree.tensors = graph.tensors;
    const std::vector<std::int32_t> row_of = Rows(graph, tree).build();
    fill_slots(graph, row_of, tree);
    tree.calls = graph.calls;
    for (ModuleIndex& module : tree.calls.module) {
        module = ModuleIndex{row_of[at(module)]};
    }
    std::int64_t total = 0;
    for (const Tensor& tensor : tree.tensors) {
        total = checked_add(total, tensor.numel, graph.name);
    }
    tree.numel = subtree_numel(tree);
    number_shapes(tree);
    return tree;
}

std::span<const std::int32_t> ForwardCalls::sources(std::size_t call) const {
    const auto begin = static_cast<std::size_t>(from_begin[call]);
    return std::span(from).subspan(begin, static_cast<std::size_t>(from_begin[call + 1]) - begin);
}

std::span<const ModuleIndex> ModuleTree::children(ModuleIndex m) const {
    const auto begin = static_cast<std::size_t>(child_begin[at(m)]);
    return std::span(child).subspan(begin, static_cast<std::size_t>(child_begin[at(m) + 1]) - begin);
}

std::span<const std::string> ModuleTree::child_names(ModuleIndex m) const {
    const auto begin = static_cast<std::size_t>(child_begin[at(m)]);
    return std::span(child_name).subspan(begin, static_cast<std::size_t>(child_begin[at(m) + 1]) - begin);
}

std::span<const TensorIndex> ModuleTree::parameters(ModuleIndex m) const {
    const auto begin = static_cast<std::size_t>(parameter_begin[at(m)]);
    return std::span(parameter).subspan(begin, static_cast<std::size_t>(parameter_begin[at(m) + 1]) - begin);
}

std::span<const std::string> ModuleTree::parameter_names(ModuleIndex m) const {
    const auto begin = static_cast<std::size_t>(parameter_begin[at(m)]);
    return std::span(parameter_name)
        .subspan(begin, static_cast<std::size_t>(parameter_begin[at(m) + 1]) - begin);
}

std::string ModuleTree::path(ModuleIndex m) const {
    std::vector<std::string_view> steps;
    for (ModuleIndex at_module = m; at(at_module) != 0;) {
        const ModuleIndex above{parent[at(at_module)]};
        const std::span<const ModuleIndex> slots = children(above);
        const auto slot = std::ranges::find(slots, at_module) - slots.begin();
        steps.push_back(child_names(above)[static_cast<std::size_t>(slot)]);
        at_module = above;
    }
    std::string out;
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
        if (!out.empty()) {
            out += '.';
        }
        out += *step;
    }
    return out;
}

std::optional<ModuleIndex> ModuleTree::find(std::string_view path) const {
    ModuleIndex m{};
    while (!path.empty()) {
        const std::string_view step = path.substr(0, path.find('.'));
        path.remove_prefix(std::min(path.size(), step.size() + 1));
        const std::span<const std::string> names = child_names(m);
        const auto slot = std::ranges::find(names, step);
        if (slot == names.end()) {
            return std::nullopt;
        }
        m = children(m)[static_cast<std::size_t>(slot - names.begin())];
    }
    return m;
}

std::optional<TensorIndex> ModuleTree::find_parameter(std::string_view path) const {
    const std::size_t dot = path.rfind('.');
    const std::string_view owner = dot == std::string_view::npos ? "" : path.substr(0, dot);
    const std::string_view leaf = dot == std::string_view::npos ? path : path.substr(dot + 1);
    const std::optional<ModuleIndex> m = find(owner);
    if (!m) {
        return std::nullopt;
    }
    const std::span<const std::string> names = parameter_names(*m);
    const auto slot = std::ranges::find(names, leaf);
    if (slot == names.end()) {
        return std::nullopt;
    }
    return parameters(*m)[static_cast<std::size_t>(slot - names.begin())];
}

}  // namespace fsdplan
