#include "model/onnx/inputs.hpp"

#include <algorithm>

#include "base/json.hpp"
#include "model/onnx/player.hpp"

namespace fsdplan::onnx {
namespace {

enum class Counts : std::uint8_t { batch, sequence, nothing_known };

/// What a dimension of this name counts, by the words that people use.
Counts counted_by(std::string_view name) {
    std::string small(name);
    std::ranges::transform(small, small.begin(), [](char c) {
        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    const auto says = [&](std::string_view word) { return small.find(word) != std::string::npos; };
    if (says("batch") || small == "n" || small == "b" || small == "bsz") {
        return Counts::batch;
    }
    if (says("seq") || says("token") || says("length") || small == "s" || small == "t") {
        return Counts::sequence;
    }
    return Counts::nothing_known;
}

std::optional<std::int64_t> size_of(const Dimension& dimension, const Workload& workload) {
    if (dimension.size >= 0) {
        return dimension.size;
    }
    switch (counted_by(dimension.name)) {
        case Counts::batch:
            return workload.batch;
        case Counts::sequence:
            return workload.sequence;
        case Counts::nothing_known:
            break;
    }
    return std::nullopt;
}

}  // namespace

Shape input_shape(const Graph& graph, ValueId input, const Workload& workload) {
    Shape out;
    for (const Dimension& dimension : graph.types.at(input).shape) {
        const std::optional<std::int64_t> size = size_of(dimension, workload);
        if (!size) {
            throw Error(ErrorKind::input, graph.shown + ": input " + json::quote(graph.name(input)),
                        "dimension " + std::to_string(out.size()) + " is called " +
                            json::quote(dimension.name) +
                            ", which says neither batch nor sequence; export it under such a name, or with a "
                            "fixed size");
        }
        out.push_back(*size);
    }
    return out;
}

std::optional<Shape> said_shape(const TensorType& type, const Workload& workload) {
    Shape out;
    for (const Dimension& dimension : type.shape) {
        const bool is_formula = dimension.name.find_first_of("+-*/( ") != std::string::npos;
        const std::optional<std::int64_t> size = is_formula ? std::nullopt : size_of(dimension, workload);
        if (!size) {
            return std::nullopt;
        }
        out.push_back(*size);
    }
    return out;
}

FixedSizes fixed_sizes(const Graph& graph) {
    FixedSizes out;
    for (const ValueId input : graph.inputs) {
        input_shape(graph, input, {});
    }
    if (graph.inputs.empty() || graph.types.at(graph.inputs.front()).shape.empty()) {
        return out;
    }
    const TensorType& first = graph.types.at(graph.inputs.front());
    if (first.shape[0].size >= 0) {
        out.batch = first.shape[0].size;
    }
    // Images have no sequence.
    if (first.shape.size() > 1 && first.shape[1].size >= 0 && !is_floating_point(first.dtype)) {
        out.sequence = first.shape[1].size;
    }
    return out;
}

}  // namespace fsdplan::onnx
