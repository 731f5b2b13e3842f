#pragma once

#include "operators/eager.hpp"

// Further operators on single elements, and reductions over them. Arguments as in functional.hpp; sources:
// tools/autograd/derivatives.yaml of PyTorch 2.13.
namespace fsdplan::op {

Value sub(Eager& f, Value a, Value b);
/// a / b; keeps b, and a too when b learns.
Value div(Eager& f, Value a, Value b);
/// The larger or the smaller one; keeps both.
Value larger(Eager& f, Value a, Value b, std::string_view name);
/// a where `condition` holds, else b; keeps the condition.
Value where(Eager& f, const Value& condition, Value a, Value b);
/// One kernel that keeps nothing, as for sums, means and signs; `shape` is that of the result.
Value keeps_nothing(Eager& f, Value x, Shape shape, std::string_view name);
/// The largest or smallest elements; keeps x and the result.
Value extreme(Eager& f, Value x, Shape shape, std::string_view name);
/// The shape of an elementwise result of two operands, which agree or are 1 in each dimension.
Shape broadcast(const Shape& a, const Shape& b);
/// The dtype of an elementwise result; a tensor without dimensions does not decide.
DType promoted(const Value& a, const Value& b);

}  // namespace fsdplan::op
