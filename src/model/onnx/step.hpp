#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/onnx/graph.hpp"
#include "operators/eager.hpp"

namespace fsdplan::onnx {

using Numbers = std::vector<std::int64_t>;

/// A value of the graph while it is played.
struct Datum {
    Value value;
    Shape strides;                   ///< in elements, as torch has them: whether a reshape is a view
    std::optional<Numbers> numbers;  ///< when the host knows them, as it does shapes
    bool is_constant = false;        ///< neither an input nor a parameter goes into it
};

/// Why an operator cannot be played as it stands: a shape does not follow, or the operator is not described
/// in this form.
struct NotPlayable {
    std::string why;
};

/// One node that is played. Inputs that are left out are null.
struct Step {
    Eager& f;
    const Node& node;
    std::vector<const Datum*> inputs;

    bool has(std::size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
    const Datum& datum(std::size_t i) const;
    const Value& value(std::size_t i) const { return datum(i).value; }
    const Shape& shape(std::size_t i) const { return datum(i).value.shape(); }
    /// Those of an input, or else of an attribute, as older operator sets have them; null: neither is there.
    std::optional<Numbers> numbers(std::size_t i, std::string_view attribute = {}) const;
    /// A dimension counted from the end when negative.
    std::size_t dimension(std::int64_t axis, std::size_t rank) const;
};

using Play = std::vector<Datum> (*)(const Step& step);

struct PlayEntry {
    std::string_view op;
    Play play;
};
std::span<const PlayEntry> view_plays();
std::span<const PlayEntry> elementwise_plays();
std::span<const PlayEntry> product_plays();
std::span<const PlayEntry> indexing_plays();
std::span<const PlayEntry> layer_plays();

/// The result of a node whose numbers the host knows; none: it is for the device.
std::optional<Datum> played_on_host(const Step& step);

/// One result in contiguous memory.
std::vector<Datum> result(Value value);
/// One result that is laid out like `strides`.
std::vector<Datum> result(Value value, Shape strides);

/// `shape`, when it can exist: no negative size, and at most 2^53 elements.
Shape possible(Shape shape);
/// The shape of an elementwise result, when the operands go together.
Shape broadcast_of(const Shape& a, const Shape& b);

Shape contiguous_strides(const Shape& shape);
/// The strides of a view of another shape; none: torch has to copy.
std::optional<Shape> strides_of_view(const Shape& shape, const Shape& strides, const Shape& wanted);
/// The strides of an elementwise result: those of the first operand that is as large, when it has no gaps.
Shape strides_like(const Step& step, const Shape& shape);

}  // namespace fsdplan::onnx
