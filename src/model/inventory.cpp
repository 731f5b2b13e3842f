#include "model/inventory.hpp"

#include <algorithm>
#include <charconv>
#include <map>

namespace fsdplan {
namespace {

void add(TensorTotals& totals, const Tensor& tensor) {
    ++totals.tensors;
    totals.numel += tensor.numel;
    totals.bytes += bytes_of(tensor.numel, tensor.dtype);
}

std::optional<std::int64_t> number_of(std::string_view name) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
    const bool whole = error == std::errc() && end == name.data() + name.size() && !name.empty();
    return whole ? std::optional(value) : std::nullopt;
}

std::string joined(const std::string& path, std::string_view name) {
    return path.empty() ? std::string(name) : path + "." + std::string(name);
}

void count_tensors(const ModelGraph& graph, const ModuleTree& tree, Inventory& out) {
    std::vector<char> is_parameter(graph.tensors.size(), 0);
    for (const TensorIndex t : tree.parameter) {
        is_parameter[at(t)] = 1;
    }
    std::map<DType, TensorTotals> by_dtype;
    for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
        const Tensor& tensor = graph.tensors[t];
        if (is_parameter[t] == 0) {
            continue;
        }
        add(out.parameters, tensor);
        add(by_dtype[tensor.dtype], tensor);
        if (tensor.requires_grad) {
            out.trainable_numel += tensor.numel;
        } else {
            add(out.frozen, tensor);
        }
    }
    for (const auto& [dtype, totals] : by_dtype) {
        out.by_dtype.push_back({dtype, totals});
    }
    std::ranges::stable_sort(out.by_dtype, std::ranges::greater(),
                             [](const DTypeTotals& d) { return d.totals.bytes.count; });
    std::vector<char> seen(graph.tensors.size(), 0);
    for (const ModuleNode& node : graph.modules) {
        for (const TensorSlot& slot : node.buffers) {
            if (seen[at(slot.tensor)] != 0 || is_parameter[at(slot.tensor)] != 0) {
                continue;
            }
            seen[at(slot.tensor)] = 1;
            const Tensor& tensor = graph.tensors[at(slot.tensor)];
            add(out.buffers, tensor);
            out.non_persistent += slot.persistent ? Bytes{} : bytes_of(tensor.numel, tensor.dtype);
        }
    }
}

void count_modules(const ModuleTree& tree, Inventory& out) {
    std::vector<ClassTotals> classes(tree.classes.size());
    for (std::size_t c = 0; c < classes.size(); ++c) {
        classes[c].name = tree.classes[c].name;
    }
    std::vector<std::int64_t> depth(tree.size(), 0);
    std::vector<char> counted(tree.tensors.size(), 0);
    for (std::size_t row = 0; row < tree.size(); ++row) {
        const ModuleIndex m{static_cast<std::int32_t>(row)};
        depth[row] = row == 0 ? 0 : depth[static_cast<std::size_t>(tree.parent[row])] + 1;
        out.depth = std::max(out.depth, depth[row]);
        ClassTotals& totals = classes[at(tree.class_of[row])];
        ++totals.instances;
        for (const TensorIndex t : tree.parameters(m)) {
            totals.own_numel += counted[at(t)] == 0 ? tree.tensors[at(t)].numel : 0;
            counted[at(t)] = 1;
        }
    }
    std::erase_if(classes, [](const ClassTotals& c) { return c.instances == 0; });
    std::ranges::stable_sort(classes, [](const ClassTotals& a, const ClassTotals& b) {
        return a.own_numel != b.own_numel ? a.own_numel > b.own_numel : a.instances > b.instances;
    });
    out.modules = static_cast<std::int64_t>(tree.size());
    out.classes = std::move(classes);
}

void find_sharing(const ModuleTree& tree, Inventory& out) {
    std::map<TensorIndex, std::vector<std::string>> names;
    std::map<ModuleIndex, std::vector<std::string>> paths;
    std::vector<std::int32_t> registrations(tree.tensors.size(), 0);
    std::vector<std::int32_t> slots(tree.size(), 0);
    for (const TensorIndex t : tree.parameter) {
        ++registrations[at(t)];
    }
    for (const ModuleIndex c : tree.child) {
        ++slots[at(c)];
    }
    for (std::size_t row = 0; row < tree.size(); ++row) {
        const ModuleIndex m{static_cast<std::int32_t>(row)};
        for (std::size_t i = 0; i < tree.parameters(m).size(); ++i) {
            const TensorIndex t = tree.parameters(m)[i];
            if (registrations[at(t)] > 1) {
                names[t].push_back(joined(tree.path(m), tree.parameter_names(m)[i]));
            }
        }
        for (std::size_t i = 0; i < tree.children(m).size(); ++i) {
            const ModuleIndex c = tree.children(m)[i];
            if (slots[at(c)] > 1) {
                paths[c].push_back(joined(tree.path(m), tree.child_names(m)[i]));
            }
        }
    }
    for (auto& [tensor, list] : names) {
        out.tied.push_back(std::move(list));
    }
    for (auto& [module, list] : paths) {
        out.shared_modules.push_back(std::move(list));
    }
}

class BlockFinder {
public:
    explicit BlockFinder(const ModuleTree& tree) : tree_(tree), seen_(tree.size(), 0) {}

    std::vector<RepeatedBlock> find() {
        visit(ModuleIndex{}, "", 1);
        return std::move(found_);
    }

private:
    void visit(ModuleIndex m, const std::string& path, std::int64_t repetitions) {
        for (const ChildRun run : runs_of_children(tree_, m)) {
            const ModuleIndex child = tree_.children(m)[run.first];
            if (seen_[at(child)] != 0) {
                continue;  // a shared module is described where it was met first
            }
            seen_[at(child)] = 1;
            const std::string child_path = joined(path, run_name(tree_, m, run));
            const std::int64_t all = repetitions * static_cast<std::int64_t>(run.count);
            if (run.count > 1 && tree_.numel[at(child)] > 0) {
                found_.push_back({.path = child_path,
                                  .class_name = tree_.class_info(child).name,
                                  .count = all,
                                  .numel = tree_.numel[at(child)]});
            }
            visit(child, child_path, all);
        }
    }

    const ModuleTree& tree_;
    std::vector<char> seen_;
    std::vector<RepeatedBlock> found_;
};

void find_no_split(const ModelGraph& graph, const Inventory& counted, std::vector<NoSplitClass>& out) {
    for (const std::string& name : graph.no_split_classes) {
        NoSplitClass entry{.name = name, .instances = 0};
        for (const ClassTotals& c : counted.classes) {
            entry.instances += short_name(c.name) == name ? c.instances : 0;
        }
        out.push_back(std::move(entry));
    }
}

}  // namespace

std::vector<ChildRun> runs_of_children(const ModuleTree& tree, ModuleIndex m) {
    const std::span<const ModuleIndex> children = tree.children(m);
    const std::span<const std::string> names = tree.child_names(m);
    std::vector<ChildRun> runs;
    std::optional<std::int64_t> previous;
    for (std::size_t i = 0; i < children.size(); ++i) {
        const std::optional<std::int64_t> number = number_of(names[i]);
        const bool goes_on = i > 0 && number && previous && *number == *previous + 1 &&
                             tree.shape[at(children[i])] == tree.shape[at(children[i - 1])] &&
                             children[i] > children[i - 1];  // neither is met again
        if (goes_on) {
            ++runs.back().count;
        } else {
            runs.push_back({.first = i, .count = 1});
        }
        previous = number;
    }
    return runs;
}

std::string run_name(const ModuleTree& tree, ModuleIndex m, ChildRun run) {
    const std::span<const std::string> names = tree.child_names(m);
    return run.count == 1 ? names[run.first] : names[run.first] + "-" + names[run.first + run.count - 1];
}

Inventory inventory_of(const ModelGraph& graph, const ModuleTree& tree) {
    Inventory out;
    out.name = graph.name;
    out.source = graph.source;
    out.classes_known = graph.classes_known;
    out.longest_sequence = graph.longest_sequence;
    out.notes = graph.notes;
    count_tensors(graph, tree, out);
    count_modules(tree, out);
    find_sharing(tree, out);
    out.blocks = BlockFinder(tree).find();
    find_no_split(graph, out, out.no_split);
    return out;
}

}  // namespace fsdplan
