#include "model/onnx/slots.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "model/attribute_path.hpp"
#include "model/onnx/fuse.hpp"

namespace fsdplan::onnx {
namespace {

/// What the inputs of operators are called in the modules that hold them; "": nothing in particular.
std::string_view role_of(const Node& node, std::size_t input) {
    constexpr std::string_view weight = "weight";
    constexpr std::string_view bias = "bias";
    if (node.op == "Gather") {
        return input == 0 ? weight : "";
    }
    if (node.op == "BatchNormalization" && input >= 3) {
        return input == 3 ? "running_mean" : input == 4 ? "running_var" : "";
    }
    const bool takes_both = node.op == "linear" || node.op == "Conv" || node.op == "ConvTranspose" ||
                            node.op == "LayerNormalization" || node.op == "BatchNormalization" ||
                            node.op == "InstanceNormalization" || node.op == "GroupNormalization" ||
                            node.op == "RMSNormalization";
    return !takes_both || input == 0 ? "" : input == 1 ? weight : input == 2 ? bias : "";
}

bool is_around(std::string_view outer, std::string_view inner) {
    return outer.empty() || inner == outer || (inner.starts_with(outer) && inner[outer.size()] == '.');
}

Slot slot_named(const std::string& name) {
    const std::size_t dot = name.rfind('.');
    return dot == std::string::npos ? Slot{"", name} : Slot{name.substr(0, dot), name.substr(dot + 1)};
}

class Finder {
public:
    explicit Finder(const Graph& graph) : graph_(graph) {}

    HeldTensors find() {
        for (const Node& node : graph_.nodes) {
            for (std::size_t i = 0; i < node.inputs.size(); ++i) {
                if (role_of(node, i).starts_with("running_")) {
                    statistics_.insert(node.inputs[i]);
                }
            }
        }
        for (const ValueId v : graph_.initializers) {
            add_named(v, v);
        }
        for (const Node& node : graph_.nodes) {
            // TorchScript's exporter leaves the names of what it has merged.
            if (node.op == "Identity" && stored(node.input(0)) != nullptr) {
                source_.emplace(node.outputs.front(), origin(node.input(0)));
                add_named(node.outputs.front(), origin(node.input(0)));
            }
        }
        for (const Node& node : graph_.nodes) {
            std::vector<std::int32_t>& rows = out_.of_input.emplace_back();
            for (std::size_t i = 0; i < node.inputs.size(); ++i) {
                rows.push_back(node.op == "Identity" ? -1 : row_read(node, i));
            }
        }
        return std::move(out_);
    }

private:
    ValueId origin(ValueId v) const {
        const auto found = source_.find(v);
        return found == source_.end() ? v : found->second;
    }
    const Constant* stored(ValueId v) const { return graph_.constant(origin(v)); }

    bool is_named(ValueId v, const Constant& constant) const {
        const std::string& name = graph_.name(v);
        // The exporter's own constants have names without dots, too.
        const bool looks_held = name.find('.') != std::string::npos || is_floating_point(constant.dtype);
        return looks_held && !is_generated(name) && is_attribute_path(name);
    }

    /// Whether two names of one initializer are two tensors that had equal values.
    static bool was_merged(const Constant& constant) {
        return constant.uniform.value_or(constant.shape.size() <= 1);
    }

    std::int32_t add(HeldTensor held) {
        const auto row = static_cast<std::int32_t>(out_.rows.size());
        row_of_path_.emplace(join_path(held.slot.module, held.slot.name), row);
        out_.rows.push_back(std::move(held));
        return row;
    }

    void add_named(ValueId v, ValueId source) {
        const Constant& constant = *graph_.constant(source);
        const std::string& name = graph_.name(v);
        if (!is_named(v, constant) || row_of_path_.contains(name)) {
            return;
        }
        std::string flat = name;
        std::ranges::replace(flat, '.', '_');
        const bool is_buffer =
            !is_floating_point(constant.dtype) || graph_.buffers.contains(flat) || statistics_.contains(v);
        row_of_value_.emplace(v, add_like(source, slot_named(name), constant.shape, is_buffer));
    }

    /// A row for a further name of an initializer: another tensor, or a tie.
    std::int32_t add_like(ValueId source, Slot slot, std::vector<std::int64_t> shape, bool is_buffer) {
        const Constant& constant = *graph_.constant(source);
        HeldTensor held{.slot = std::move(slot), .shape = std::move(shape), .dtype = constant.dtype};
        held.is_buffer = is_buffer;
        const auto first = row_of_value_.find(source);
        if (first != row_of_value_.end()) {
            if (was_merged(constant)) {
                ++out_.taken_apart;
            } else {
                held.tied_to = first->second;
                held.is_buffer = out_.rows[static_cast<std::size_t>(first->second)].is_buffer;
            }
        }
        return add(std::move(held));
    }

    std::int32_t row_read(const Node& node, std::size_t i) {
        const ValueId v = node.inputs[i];
        const Constant* constant = v < 0 ? nullptr : stored(v);
        if (constant == nullptr || !initializes(v)) {
            return -1;
        }
        const std::string module = node.scopes.empty() ? "" : node.scopes.back().path;
        const std::string_view role = role_of(node, i);
        const auto own = row_of_value_.find(v);
        if (own != row_of_value_.end()) {
            const std::string& holder = out_.rows[static_cast<std::size_t>(own->second)].slot.module;
            if (role.empty() || node.scopes.empty() || is_around(holder, module) ||
                is_around(module, holder)) {
                return own->second;
            }
        } else if (role.empty() || !is_floating_point(constant->dtype) || constant->numel <= 1) {
            return -1;  // a constant
        }
        const auto known = row_of_path_.find(join_path(module, role));
        if (known != row_of_path_.end()) {
            return known->second;
        }
        std::vector<std::int64_t> shape = constant->shape;
        if (node.integer("folded", 0) != 0 && i == 1) {
            std::ranges::reverse(shape);
        }
        out_.named_by_place += own == row_of_value_.end() ? 1 : 0;
        const std::int32_t row =
            add_like(origin(v), {module, std::string(role)}, std::move(shape), role.starts_with("running_"));
        row_of_value_.emplace(origin(v), row);
        return row;
    }

    bool initializes(ValueId v) const {
        return source_.contains(v) || std::ranges::binary_search(graph_.initializers, v);
    }

    const Graph& graph_;
    HeldTensors out_;
    std::unordered_set<ValueId> statistics_;       // that batch norms keep while they run
    std::unordered_map<ValueId, ValueId> source_;  // of values that are an initializer under another name
    std::unordered_map<ValueId, std::int32_t> row_of_value_;
    std::unordered_map<std::string, std::int32_t> row_of_path_;
};

}  // namespace

HeldTensors held_tensors(const Graph& graph) {
    return Finder(graph).find();
}

}  // namespace fsdplan::onnx
