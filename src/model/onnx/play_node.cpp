#include "model/onnx/play_node.hpp"

#include <algorithm>

#include "base/json.hpp"
#include "model/onnx/inputs.hpp"

namespace fsdplan::onnx {

NodePlayer::NodePlayer(const Graph& graph, Eager& f) : graph_(graph), f_(f) {
    for (const auto& entries :
         {view_plays(), elementwise_plays(), product_plays(), indexing_plays(), layer_plays()}) {
        for (const PlayEntry& entry : entries) {
            plays_.emplace(entry.op, entry.play);
        }
    }
}

std::vector<Datum> NodePlayer::play(const Step& step) {
    try {
        if (std::optional<Datum> known = played_on_host(step)) {
            return {std::move(*known)};
        }
        if (std::optional<Datum> number = scalar_result(step)) {
            return {std::move(*number)};
        }
        const auto play = plays_.find(step.node.op);
        if (play == plays_.end()) {
            return unknown(step, "is not described");
        }
        std::vector<Datum> out = play->second(step);
        if (std::ranges::any_of(out, [](const Datum& d) { return d.value.numel() == 0; })) {
            throw NotPlayable{"has a result without elements"};
        }
        return out;
    } catch (const NotPlayable& reason) {
        return unknown(step, reason.why);
    }
}

/// Arithmetic with numbers, which torch does on the host: no memory, and nothing asks for the value.
std::optional<Datum> NodePlayer::scalar_result(const Step& step) {
    const std::span<const PlayEntry> arithmetic = elementwise_plays();
    if (std::ranges::find(arithmetic, step.node.op, &PlayEntry::op) == arithmetic.end() || !step.has(0)) {
        return std::nullopt;
    }
    Shape shape;
    for (const Datum* input : step.inputs) {
        if (input != nullptr && !(input->is_constant && input->value.numel() == 1)) {
            return std::nullopt;
        }
        shape = input == nullptr ? shape : broadcast_of(shape, input->value.shape());
    }
    Datum out = *step.inputs[0];
    out.numbers.reset();
    out.value = f_.outside(shape, step.value(0).dtype());
    out.strides = contiguous_strides(shape);
    return out;
}

/// An operator that is not described: its result is as large as the file says, and gradients pass it.
std::vector<Datum> NodePlayer::unknown(const Step& step, const std::string& why) {
    const Node& node = step.node;
    const std::string shown = "operator " + json::quote(node.op) + " (" + node.name + ") " + why;
    Values inputs;
    std::vector<Result> like;
    for (const Datum* input : step.inputs) {
        if (input != nullptr) {
            inputs.push_back(&input->value);
            like.push_back({input->value.shape(), input->value.dtype()});
        }
    }
    std::vector<Datum> out;
    for (const ValueId v : node.outputs) {
        const auto type = graph_.types.find(v);
        const std::optional<Shape> shape =
            type == graph_.types.end() ? std::nullopt : said_shape(type->second, f_.workload());
        if (!shape || numel_of(possible(*shape)) == 0) {
            throw NotPlayable{shown + ", and the file does not say how large its result is"};
        }
        Value value = f_.run(node.op, {*shape, type->second.dtype}, inputs);
        f_.node({&value}, inputs, {}, [like](Eager& e, Gradients& g) {
            for (std::size_t i = 0; i < like.size(); ++i) {
                if (g.wanted(i)) {
                    g.give(i, e.run("unknown_backward", like[i], {&g.of_output()}));
                }
            }
        });
        out.push_back(result(std::move(value)).front());
    }
    const auto [entry, first] = unknown_.try_emplace(node.op + why, shown, 0);
    ++entry->second.second;
    return out;
}

void NodePlayer::note_unknown() {
    for (const auto& [kind, found] : unknown_) {
        const auto& [what, count] = found;
        f_.note(what + (count > 1 ? ", " + std::to_string(count) + " times" : "") +
                ": what autograd keeps for it is not known and not counted");
    }
}

}  // namespace fsdplan::onnx
