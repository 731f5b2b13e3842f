#pragma once

#include "operators/eager.hpp"

// Operators that take tensors apart and put them together, along any dimension.
namespace fsdplan::op {

/// A part of x with this shape: a slice, or one index of a dimension. A view.
Value slice(Eager& f, const Value& x, Shape shape);
/// Views with these shapes that x falls into, whose gradients are joined again.
std::vector<Value> split(Eager& f, const Value& x, const std::vector<Shape>& shapes);
/// Tensors one behind the other; `shape` is that of the result.
Value cat(Eager& f, const std::vector<Value>& parts, Shape shape);
/// x repeated up to `shape` without memory of its own.
Value expand(Eager& f, const Value& x, Shape shape);
/// Rows of x that `index` names; `shape` is that of the result.
Value index_select(Eager& f, const Value& x, const Value& index, Shape shape);

}  // namespace fsdplan::op
