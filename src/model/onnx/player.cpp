#include "model/onnx/player.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/json.hpp"
#include "model/onnx/fuse.hpp"
#include "model/onnx/inputs.hpp"
#include "model/onnx/play_node.hpp"
#include "operators/functional.hpp"

namespace fsdplan::onnx {
namespace {

std::size_t at(std::int64_t i) {
    return static_cast<std::size_t>(i);
}

/// Plays nodes as the Python that they were traced from: modules call each other, and whoever has made or
/// passed a tensor holds it while it is read.
class Player {
public:
    Player(const ImportedGraph& imported, const ModuleTree& tree, const Workload& workload)
        : imported_(imported),
          graph_(imported.graph),
          f_(tree, workload),
          values_(graph_.names.size()),
          born_(graph_.names.size(), -1),
          last_read_(graph_.names.size(), -1),
          nodes_(graph_, f_) {
        const std::vector<char> host = host_nodes(graph_);
        on_device_.assign(host.size() + 1, 0);  // sums
        for (std::size_t n = 0; n < host.size(); ++n) {
            on_device_[n + 1] = on_device_[n] + (host[n] != 0 ? 0 : 1);
            for (const ValueId v : graph_.nodes[n].inputs) {
                note_read(v, static_cast<std::int32_t>(n));
            }
            for (const ValueId v : graph_.nodes[n].outputs) {
                if (v >= 0) {
                    born_[at(v)] = static_cast<std::int32_t>(n);
                    note_read(v, static_cast<std::int32_t>(n));
                }
            }
        }
        for (const ValueId v : graph_.outputs) {
            note_read(v, static_cast<std::int32_t>(graph_.nodes.size()));
        }
    }

    OperatorGraph play() {
        provide_constants();
        Values inputs;
        for (const ValueId v : graph_.inputs) {
            inputs.push_back(&provide_input(v));
        }
        const auto end = static_cast<std::int32_t>(graph_.nodes.size());
        const ValueId output = output_value();
        Value logits = f_.call(ModuleIndex{0}, inputs, [&] {
            play_range(0, end, 0);
            Value out = values_[at(output)].value;
            forget_outputs();
            return out;
        });
        nodes_.note_unknown();
        return f_.finish(loss_of(std::move(logits), output));
    }

private:
    void note_read(ValueId v, std::int32_t by) {
        if (v >= 0) {
            last_read_[at(v)] = std::max(last_read_[at(v)], by);
        }
    }

    void provide(ValueId v, Value value, bool is_constant) {
        Datum& datum = values_[at(v)];
        datum.strides = contiguous_strides(value.shape());
        datum.value = std::move(value);
        datum.is_constant = is_constant;
    }

    void provide_constants() {
        for (const auto& [v, constant] : graph_.constants) {
            provide(v, f_.outside(possible(constant.shape), constant.dtype), true);
            values_[at(v)].numbers = constant.numbers;
        }
    }

    /// Floating-point inputs come in the dtype that the model computes in.
    const Value& provide_input(ValueId v) {
        const DType dtype = graph_.types.at(v).dtype;
        const Shape shape = possible(input_shape(graph_, v, f_.workload()));
        if (numel_of(shape) == 0) {
            throw NotPlayable{"an input has no elements"};
        }
        provide(v,
                f_.outside(shape, is_floating_point(dtype) ? f_.workload().compute.value_or(dtype) : dtype),
                false);
        return values_[at(v)].value;
    }

    /// The first output that a loss can be made of.
    ValueId output_value() const {
        if (graph_.outputs.empty()) {
            throw NotPlayable{"the graph has no output"};
        }
        return graph_.outputs.front();
    }

    void forget_outputs() {
        for (const ValueId v : graph_.outputs) {
            values_[at(v)] = {};
        }
    }

    Value loss_of(Value logits, ValueId output) {
        if (!logits || !logits.requires_grad()) {
            throw NotPlayable{"no gradient reaches the output " + json::quote(graph_.name(output))};
        }
        f_.use_as(logits, Storage::Use::logits);
        if (logits.shape().empty()) {
            f_.note("the first output is taken for the loss");
            return logits;
        }
        f_.note("the loss is taken to be cross entropy over the last dimension of the output " +
                json::quote(graph_.name(output)) + ", in its own dtype");
        const std::int64_t classes = logits.size(-1);
        Value rows = op::reshape(f_, logits, Shape{logits.numel() / classes, classes});
        logits.reset();
        const Value target = f_.outside({rows.size(0)}, DType::int64);
        return op::cross_entropy(f_, std::move(rows), target);
    }

    // Calls.

    const Scope* scope_of(std::int32_t n, std::size_t depth) const {
        const std::vector<Scope>& scopes = graph_.nodes[at(n)].scopes;
        return depth < scopes.size() ? &scopes[depth] : nullptr;
    }

    /// One past the last node of the call that begins at `begin`. What the exporter has moved between its
    /// nodes belongs to it as long as it is work of the host.
    std::int32_t end_of_call(std::int32_t begin, std::int32_t end, std::size_t depth) const {
        const Scope& scope = *scope_of(begin, depth);
        std::int32_t last = begin;
        for (std::int32_t n = begin + 1; n < end; ++n) {
            const Scope* other = scope_of(n, depth);
            if (other != nullptr && *other == scope) {
                last = n;
            } else if (other != nullptr || on_device(n, n + 1)) {
                break;
            }
        }
        return last + 1;
    }

    bool on_device(std::int32_t begin, std::int32_t end) const {
        return on_device_[at(end)] > on_device_[at(begin)];
    }

    bool is_leaf(std::int32_t begin, std::int32_t end, std::size_t depth) const {
        for (std::int32_t n = begin; n < end; ++n) {
            if (scope_of(n, depth + 1) != nullptr && on_device(n, n + 1)) {
                return false;
            }
        }
        return true;
    }

    void play_range(std::int32_t begin, std::int32_t end, std::size_t depth) {
        std::int32_t n = begin;
        while (n < end) {
            std::int32_t next = n + 1;
            const Scope* scope = scope_of(n, depth);
            if (scope != nullptr) {
                next = end_of_call(n, end, depth);
            }
            if (scope != nullptr && on_device(n, next)) {
                play_call(n, next, depth, *scope);
            } else {
                for (std::int32_t one = n; one < next; ++one) {
                    play_node(one);
                }
            }
            forget_read(n, next, begin);
            n = next;
        }
    }

    /// Lets go what a frame that began at `frame` has made and nobody reads after these nodes.
    void forget_read(std::int32_t begin, std::int32_t end, std::int32_t frame) {
        const auto forget = [&](ValueId v) {
            if (v >= 0 && born_[at(v)] >= frame && last_read_[at(v)] < end) {
                values_[at(v)] = {};
            }
        };
        for (std::int32_t n = begin; n < end; ++n) {
            std::ranges::for_each(graph_.nodes[at(n)].inputs, forget);
            std::ranges::for_each(graph_.nodes[at(n)].outputs, forget);
        }
    }

    void play_call(std::int32_t begin, std::int32_t end, std::size_t depth, const Scope& scope) {
        const ModuleIndex module = module_at(scope.path);
        const std::vector<ValueId> passed = passed_to(begin, end);
        Values inputs;
        for (const ValueId v : passed) {
            inputs.push_back(&values_[at(v)].value);
        }
        const std::vector<ValueId> results = results_of(begin, end);
        const Value out = f_.call(module, inputs, [&] {
            play_range(begin, end, depth + 1);
            return results.empty() ? f_.outside({}, DType::float32) : values_[at(results.back())].value;
        });
        if (results.empty()) {
            return;
        }
        values_[at(results.back())].value = out;
        if (is_leaf(begin, end, depth)) {
            for (const ValueId v : std::span(results).first(results.size() - 1)) {
                Value& value = values_[at(v)].value;
                value = f_.from_last_leaf(value, value.shape());
            }
        }
    }

    /// Tensors from outside that these nodes read.
    std::vector<ValueId> passed_to(std::int32_t begin, std::int32_t end) const {
        std::vector<ValueId> out;
        for (std::int32_t n = begin; n < end; ++n) {
            for (const ValueId v : graph_.nodes[at(n)].inputs) {
                const bool outer =
                    v >= 0 && born_[at(v)] < begin && values_[at(v)].value && !values_[at(v)].is_constant;
                if (outer && std::ranges::find(out, v) == out.end()) {
                    out.push_back(v);
                }
            }
        }
        return out;
    }

    /// Tensors that these nodes make for others.
    std::vector<ValueId> results_of(std::int32_t begin, std::int32_t end) const {
        std::vector<ValueId> out;
        for (std::int32_t n = begin; n < end; ++n) {
            for (const ValueId v : graph_.nodes[at(n)].outputs) {
                if (v >= 0 && last_read_[at(v)] >= end && on_device(n, n + 1)) {
                    out.push_back(v);
                }
            }
        }
        return out;
    }

    ModuleIndex module_at(const std::string& path) {
        const auto known = modules_.find(path);
        if (known != modules_.end()) {
            return known->second;
        }
        const std::optional<ModuleIndex> found = f_.tree().find(path);
        if (!found) {
            throw NotPlayable{"the model is no longer the file's: it has no module " + json::quote(path)};
        }
        return modules_.emplace(path, *found).first->second;
    }

    // Nodes.

    /// A parameter, for the time of one node: the model holds it.
    std::optional<Datum> held_by_module(std::int32_t n, std::size_t input) {
        const std::int32_t row = imported_.slot_of_input[at(n)][input];
        if (row < 0) {
            return std::nullopt;
        }
        const Slot& slot = imported_.slots[at(row)];
        const ModuleIndex module = module_at(slot.module);
        if (!f_.has_parameter(module, slot.name)) {
            return std::nullopt;  // a buffer
        }
        Datum out;
        out.value = f_.parameter(module, slot.name);
        out.strides = contiguous_strides(possible(out.value.shape()));
        if (out.value.numel() == 0) {
            throw NotPlayable{"the parameter " + json::quote(slot.name) + " has no elements"};
        }
        return out;
    }

    void play_node(std::int32_t n) {
        const Node& node = graph_.nodes[at(n)];
        std::vector<std::optional<Datum>> held(node.inputs.size());
        Step step{f_, node, {}};
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
            const ValueId v = node.inputs[i];
            held[i] = v < 0 ? std::nullopt : held_by_module(n, i);
            step.inputs.push_back(held[i]                          ? &*held[i]
                                  : v < 0 || !values_[at(v)].value ? nullptr
                                                                   : &values_[at(v)]);
        }
        std::vector<Datum> results = nodes_.play(step);
        for (std::size_t i = 0; i < std::min(results.size(), node.outputs.size()); ++i) {
            if (node.outputs[i] >= 0) {
                values_[at(node.outputs[i])] = std::move(results[i]);
            }
        }
    }

    const ImportedGraph& imported_;
    const Graph& graph_;
    Eager f_;
    std::vector<Datum> values_;
    std::vector<std::int32_t> born_;       // node that makes each value; -1: it was there before
    std::vector<std::int32_t> last_read_;  // node that reads each value last
    std::vector<std::int32_t> on_device_;  // nodes before each that run on the device
    NodePlayer nodes_;
    std::unordered_map<std::string, ModuleIndex> modules_;
};

std::string first_difference(const FixedSizes& fixed, const Workload& workload) {
    const auto differs = [](std::string_view what, std::int64_t file, std::int64_t asked) {
        return "the file was exported for a " + std::string(what) + " of " + std::to_string(file) + ", not " +
               std::to_string(asked) + ": activations are an estimate";
    };
    if (fixed.batch && *fixed.batch != workload.batch) {
        return differs("batch", *fixed.batch, workload.batch);
    }
    if (fixed.sequence && *fixed.sequence != workload.sequence) {
        return differs("sequence", *fixed.sequence, workload.sequence);
    }
    return {};
}

OperatorGraph without_operators(const Workload& workload, std::string why) {
    OperatorGraph out;
    out.workload = workload;
    out.notes.push_back(std::move(why));
    return out;
}

}  // namespace

OperatorGraph operators_of(const ImportedGraph& imported, const ModuleTree& tree, const Workload& workload) {
    if (std::string why = first_difference(fixed_sizes(imported.graph), workload); !why.empty()) {
        return without_operators(workload, std::move(why));
    }
    try {
        return Player(imported, tree, workload).play();
    } catch (const NotPlayable& reason) {
        return without_operators(workload, "activations are an estimate: " + reason.why);
    }
}

}  // namespace fsdplan::onnx
