#include <algorithm>

#include "model/onnx/step.hpp"
#include "operators/elementwise.hpp"
#include "operators/functional.hpp"
#include "operators/layers.hpp"

// Operators on single elements, and reductions.
namespace fsdplan::onnx {
namespace {

bool is_scalar(const Datum& datum) {
    return datum.is_constant && datum.value.numel() == 1;
}

std::vector<Datum> laid_out(const Step& step, Value value) {
    Shape strides = strides_like(step, value.shape());
    return result(std::move(value), std::move(strides));
}

/// Of torch's names where they differ from ONNX's in small letters.
std::string torch_name(std::string_view op) {
    std::string out;
    for (const char c : op) {
        const bool starts_word = c >= 'A' && c <= 'Z';
        out += out.empty() || !starts_word ? "" : "_";
        out += starts_word ? static_cast<char>(c - 'A' + 'a') : c;
    }
    return out;
}

std::vector<Datum> keeps_input(const Step& step) {
    return laid_out(step, op::activation(step.f, step.value(0), torch_name(step.node.op)));
}

std::vector<Datum> keeps_result(const Step& step) {
    return laid_out(step, op::activation_by_result(step.f, step.value(0), torch_name(step.node.op)));
}

std::vector<Datum> keeps_nothing(const Step& step) {
    return laid_out(step, op::keeps_nothing(step.f, step.value(0), step.shape(0), torch_name(step.node.op)));
}

/// An operator on two tensors, or on one and a number. `either`: the number may come first.
template <auto with_number, auto with_tensor, bool either>
std::vector<Datum> arithmetic(const Step& step) {
    broadcast_of(step.shape(0), step.shape(1));
    if (is_scalar(step.datum(1))) {
        return laid_out(step, with_number(step.f, step.value(0)));
    }
    if (either && is_scalar(step.datum(0))) {
        return laid_out(step, with_number(step.f, step.value(1)));
    }
    return laid_out(step, with_tensor(step.f, step.value(0), step.value(1)));
}

std::vector<Datum> power(const Step& step) {
    if (!is_scalar(step.datum(1))) {
        throw NotPlayable{"has an exponent that is no number"};
    }
    return laid_out(step, op::power(step.f, step.value(0)));
}

std::vector<Datum> extreme_of_two(const Step& step) {
    broadcast_of(step.shape(0), step.shape(1));
    if (step.inputs.size() != 2) {
        throw NotPlayable{"compares more than two tensors"};
    }
    const std::string_view name = step.node.op == "Max" ? "maximum" : "minimum";
    return laid_out(step, op::larger(step.f, step.value(0), step.value(1), name));
}

std::vector<Datum> compare(const Step& step) {
    Shape shape = step.shape(0);
    Values reads{&step.value(0)};
    if (step.has(1)) {
        shape = broadcast_of(shape, step.shape(1));
        reads.push_back(&step.value(1));
    }
    return laid_out(step, step.f.run(torch_name(step.node.op), {std::move(shape), DType::boolean}, reads));
}

std::vector<Datum> where(const Step& step) {
    broadcast_of(step.shape(0), broadcast_of(step.shape(1), step.shape(2)));
    return laid_out(step, op::where(step.f, step.value(0), step.value(1), step.value(2)));
}

// TensorProto.DataType of the types that models cast to.
std::optional<DType> cast_type(std::int64_t to) {
    switch (to) {
        case 1:
            return DType::float32;
        case 6:
            return DType::int32;
        case 7:
            return DType::int64;
        case 9:
            return DType::boolean;
        case 10:
            return DType::float16;
        case 11:
            return DType::float64;
        case 16:
            return DType::bfloat16;
        default:
            return std::nullopt;
    }
}

std::vector<Datum> cast(const Step& step) {
    const bool like = step.node.op == "CastLike";
    const std::optional<DType> to =
        like ? std::optional(step.value(1).dtype()) : cast_type(step.node.integer("to", 0));
    if (!to) {
        throw NotPlayable{"casts to a type that is not known here"};
    }
    return laid_out(step, op::to(step.f, step.value(0), *to));
}

Shape reduced_shape(const Step& step) {
    Shape shape = step.shape(0);
    const std::optional<Numbers> axes = step.numbers(1, "axes");
    const bool keeps = step.node.integer("keepdims", 1) != 0;
    std::vector<char> gone(shape.size(), axes && !axes->empty() ? 0 : 1);
    for (const std::int64_t axis : axes.value_or(Numbers{})) {
        gone[step.dimension(axis, shape.size())] = 1;
    }
    Shape out;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (gone[i] == 0 || keeps) {
            out.push_back(gone[i] != 0 ? 1 : shape[i]);
        }
    }
    return out;
}

std::vector<Datum> reduce(const Step& step) {
    const std::string_view name = step.node.op == "ReduceMean" ? "mean" : "sum";
    return result(op::keeps_nothing(step.f, step.value(0), reduced_shape(step), name));
}

std::vector<Datum> reduce_to_extreme(const Step& step) {
    const std::string_view name = step.node.op == "ReduceMax" ? "amax" : "amin";
    return result(op::extreme(step.f, step.value(0), reduced_shape(step), name));
}

std::vector<Datum> softmax(const Step& step) {
    return result(op::softmax(step.f, step.value(0), step.value(0).dtype()));
}

std::vector<Datum> dropout(const Step& step) {
    constexpr double some = 0.5;  // how much is dropped changes no size
    return laid_out(step, op::dropout(step.f, step.value(0), some));
}

constexpr PlayEntry entries[] = {
    {"Add", arithmetic<op::add_scalar, op::add, true>},
    {"Sub", arithmetic<op::add_scalar, op::sub, false>},
    {"Mul", arithmetic<op::mul_scalar, op::mul, true>},
    {"Div", arithmetic<op::mul_scalar, op::div, false>},
    {"Pow", power},
    {"Max", extreme_of_two},
    {"Min", extreme_of_two},
    {"Where", where},
    {"Cast", cast},
    {"CastLike", cast},
    {"ReduceMean", reduce},
    {"ReduceSum", reduce},
    {"ReduceMax", reduce_to_extreme},
    {"ReduceMin", reduce_to_extreme},
    {"Softmax", softmax},
    {"LogSoftmax", softmax},
    {"Dropout", dropout},
    // Results are kept.
    {"Relu", keeps_result},
    {"Sigmoid", keeps_result},
    {"Tanh", keeps_result},
    {"Exp", keeps_result},
    {"Sqrt", keeps_result},
    {"Reciprocal", keeps_result},
    {"rsqrt", keeps_result},
    // Inputs are kept.
    {"gelu", keeps_input},
    {"Gelu", keeps_input},
    {"silu", keeps_input},
    {"Erf", keeps_input},
    {"Log", keeps_input},
    {"Abs", keeps_input},
    {"Sin", keeps_input},
    {"Cos", keeps_input},
    {"Softplus", keeps_input},
    {"LeakyRelu", keeps_input},
    {"HardSwish", keeps_input},
    {"HardSigmoid", keeps_input},
    {"Clip", keeps_input},
    {"Mish", keeps_input},
    {"Elu", keeps_input},
    // Nothing is.
    {"Neg", keeps_nothing},
    {"Floor", keeps_nothing},
    {"Ceil", keeps_nothing},
    {"Round", keeps_nothing},
    {"Sign", keeps_nothing},
    {"CumSum", keeps_nothing},
    // Booleans.
    {"Equal", compare},
    {"Less", compare},
    {"LessOrEqual", compare},
    {"Greater", compare},
    {"GreaterOrEqual", compare},
    {"And", compare},
    {"Or", compare},
    {"Xor", compare},
    {"Not", compare},
    {"IsNaN", compare},
};

}  // namespace

std::span<const PlayEntry> elementwise_plays() {
    return entries;
}

}  // namespace fsdplan::onnx
