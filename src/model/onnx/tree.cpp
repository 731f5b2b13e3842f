#include "model/onnx/tree.hpp"

#include <algorithm>
#include <unordered_map>

#include "model/builder.hpp"
#include "model/onnx/slots.hpp"

namespace fsdplan::onnx {
namespace {

constexpr std::string_view plain_module = "torch.nn.modules.module.Module";

bool is_number(std::string_view name) {
    return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Class of a module in which an operator reads its parameters, where the file names none.
std::string_view class_around(const Node& node) {
    if (node.op == "linear") {
        return node.integer("transposed", 0) == 0 ? "torch.nn.modules.linear.Linear" : "";
    }
    if (node.op == "LayerNormalization") {
        return "torch.nn.modules.normalization.LayerNorm";
    }
    if (node.op == "Gather") {
        return "torch.nn.modules.sparse.Embedding";
    }
    return "";
}

class Builder {
public:
    Builder(const Graph& graph, HeldTensors held)
        : graph_(graph), held_(std::move(held)), builder_(graph.shown, graph.producer) {}

    Modules build(const ImportOptions& options) {
        learn_classes();
        scopes_.emplace("", builder_.root(class_named(graph_.root_class)));
        for (const HeldTensor& held : held_.rows) {
            module_at(held.slot.module);
        }
        for (const Node& node : graph_.nodes) {
            for (const Scope& scope : node.scopes) {
                module_at(scope.path);
            }
        }
        for (const HeldTensor& held : held_.rows) {
            register_tensor(held, options);
        }
        Modules out{.model = builder_.finish(), .slots = {}, .slot_of_input = std::move(held_.of_input)};
        for (HeldTensor& held : held_.rows) {
            out.slots.push_back(std::move(held.slot));
        }
        for (ModuleNode& node : out.model.modules) {
            sort_numbers(node.children);
        }
        out.model.classes_known = !graph_.root_class.empty();
        out.model.dtypes_recorded = !options.dtype;
        add_notes(out.model);
        return out;
    }

private:
    static ModuleClass class_named(const std::string& name) {
        if (name.empty() || name == plain_module) {
            return {std::string(plain_module), {}};
        }
        return {name, {std::string(plain_module)}};
    }

    void learn_classes() {
        for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
            const Node& node = graph_.nodes[n];
            for (const Scope& scope : node.scopes) {
                std::string& known = classes_[scope.path];
                known = known.empty() ? scope.class_name : known;
            }
            const bool reads =
                std::ranges::any_of(held_.of_input[n], [](std::int32_t row) { return row >= 0; });
            if (!node.scopes.empty() && reads) {
                std::string& known = classes_[node.scopes.back().path];
                known = known.empty() ? class_around(node) : known;
            }
        }
    }

    /// A list is not called, so that the file says nothing about it; what it holds has numbers.
    std::string guessed_class(const std::string& path, bool list) const {
        const auto known = classes_.find(path);
        if (known != classes_.end() && !known->second.empty()) {
            return known->second;
        }
        const std::size_t dot = path.rfind('.');
        if (dot != std::string::npos && is_number(std::string_view(path).substr(dot + 1))) {
            const std::size_t before = path.rfind('.', dot - 1);
            const std::size_t begin = before == std::string::npos ? 0 : before + 1;
            return path.substr(begin, dot - begin) + "_member";
        }
        return list && known == classes_.end() ? "torch.nn.modules.container.ModuleList" : "";
    }

    fsdplan::Scope module_at(const std::string& path, bool list = false) {
        if (const auto found = scopes_.find(path); found != scopes_.end()) {
            return found->second;
        }
        const std::size_t dot = path.rfind('.');
        const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
        const fsdplan::Scope parent =
            module_at(dot == std::string::npos ? "" : path.substr(0, dot), is_number(name));
        const fsdplan::Scope module = parent.child(name, class_named(guessed_class(path, list)));
        scopes_.emplace(path, module);
        return module;
    }

    void register_tensor(const HeldTensor& held, const ImportOptions& options) {
        const fsdplan::Scope module = scopes_.at(held.slot.module);
        const DType dtype = is_floating_point(held.dtype) ? options.dtype.value_or(held.dtype) : held.dtype;
        if (held.is_buffer) {
            module.buffer(held.slot.name, held.shape, dtype);
        } else if (held.tied_to >= 0) {
            const Slot& first = held_.rows[static_cast<std::size_t>(held.tied_to)].slot;
            module.tie(held.slot.name, scopes_.at(first.module), first.name);
        } else {
            module.parameter(held.slot.name, held.shape, dtype);
        }
    }

    static void sort_numbers(std::vector<ChildSlot>& children) {
        if (std::ranges::all_of(children, [](const ChildSlot& c) { return is_number(c.name); })) {
            std::ranges::stable_sort(children, [](const ChildSlot& a, const ChildSlot& b) {
                return a.name.size() != b.name.size() ? a.name.size() < b.name.size() : a.name < b.name;
            });
        }
    }

    void add_notes(ModelGraph& model) const {
        if (!model.classes_known) {
            model.notes.emplace_back(
                "the file does not name classes (TorchScript's exporter does not write them): those of "
                "linear "
                "layers, norms and embeddings follow from their operators, all others are unknown");
        } else {
            model.notes.emplace_back(
                "the file names classes without their bases: a policy that asks for a base class finds none");
        }
        if (held_.named_by_place > 0) {
            model.notes.push_back(
                std::to_string(held_.named_by_place) +
                " tensors that the exporter has folded are named after the module that reads them");
        }
        if (held_.taken_apart > 0) {
            model.notes.push_back(
                std::to_string(held_.taken_apart) +
                " tensors are stored as another one because their values are equal, and are counted apart");
        }
    }

    const Graph& graph_;
    HeldTensors held_;
    GraphBuilder builder_;
    std::unordered_map<std::string, std::string> classes_;
    std::unordered_map<std::string, fsdplan::Scope> scopes_;
};

}  // namespace

Modules modules_of(const Graph& graph, const ImportOptions& options) {
    return Builder(graph, held_tensors(graph)).build(options);
}

}  // namespace fsdplan::onnx
