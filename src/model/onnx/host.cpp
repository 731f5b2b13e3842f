#include <algorithm>
#include <functional>

#include "model/onnx/step.hpp"

// Arithmetic with shapes, which PyTorch does on the host: vectors and scalars of integers.
namespace fsdplan::onnx {
namespace {

constexpr std::size_t most_numbers = 1024;

/// Numbers in no or one dimension.
struct Known {
    bool is_vector = false;
    Numbers numbers;
};

const Numbers* numbers_of(const Step& step, std::size_t i) {
    return step.has(i) && step.inputs[i]->numbers ? &*step.inputs[i]->numbers : nullptr;
}

bool is_vector(const Step& step, std::size_t i) {
    return !step.shape(i).empty();
}

std::optional<Known> shape_of(const Step& step) {
    const Shape& shape = step.shape(0);
    const auto rank = static_cast<std::int64_t>(shape.size());
    const auto place = [&](std::int64_t at) {
        return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank);
    };
    const std::int64_t begin = place(step.node.integer("start", 0));
    const std::int64_t end = std::max(begin, place(step.node.integer("end", rank)));
    return Known{true, Numbers(shape.begin() + begin, shape.begin() + end)};
}

std::optional<Known> gather(const Step& step) {
    const Numbers* from = numbers_of(step, 0);
    const Numbers* index = numbers_of(step, 1);
    if (from == nullptr || index == nullptr || !is_vector(step, 0)) {
        return std::nullopt;
    }
    Known out{is_vector(step, 1), {}};
    const auto size = static_cast<std::int64_t>(from->size());
    for (std::int64_t i : *index) {
        i = i < 0 ? i + size : i;
        if (i < 0 || i >= size) {
            return std::nullopt;
        }
        out.numbers.push_back((*from)[static_cast<std::size_t>(i)]);
    }
    return out;
}

std::optional<Known> concat(const Step& step) {
    Known out{true, {}};
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
        const Numbers* part = numbers_of(step, i);
        if (part == nullptr) {
            return std::nullopt;
        }
        out.numbers.insert(out.numbers.end(), part->begin(), part->end());
    }
    return out;
}

std::optional<Known> slice(const Step& step) {
    const Numbers* from = numbers_of(step, 0);
    const Numbers* begin = numbers_of(step, 1);
    const Numbers* end = numbers_of(step, 2);
    const Numbers* stride = numbers_of(step, 4);
    const bool by_one = !step.has(4) || (stride != nullptr && *stride == Numbers{1});
    if (from == nullptr || begin == nullptr || end == nullptr || begin->size() != 1 || end->size() != 1 ||
        !by_one) {
        return std::nullopt;
    }
    const auto size = static_cast<std::int64_t>(from->size());
    const auto place = [&](std::int64_t at) {
        return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
    };
    const std::int64_t first = place(begin->front());
    const std::int64_t last = std::max(first, place(end->front()));
    return Known{true, Numbers(from->begin() + first, from->begin() + last)};
}

std::optional<Known> filled_with(std::int64_t number, std::int64_t times) {
    const bool is_small = times >= 0 && times <= static_cast<std::int64_t>(most_numbers);
    return is_small ? std::optional(Known{true, Numbers(static_cast<std::size_t>(times), number)})
                    : std::nullopt;
}

/// Operators that give the numbers another shape.
std::optional<Known> reshaped(const Step& step) {
    const Numbers* from = numbers_of(step, 0);
    if (from == nullptr) {
        return std::nullopt;
    }
    if (step.node.op == "Squeeze" || step.node.op == "Unsqueeze") {
        const bool to_vector = step.node.op == "Unsqueeze";
        return from->size() == 1 && is_vector(step, 0) != to_vector ? std::optional(Known{to_vector, *from})
                                                                    : std::nullopt;
    }
    if (step.node.op == "Reshape" || step.node.op == "Expand") {
        const Numbers* to = numbers_of(step, 1);
        if (to == nullptr || to->size() > 1) {
            return std::nullopt;
        }
        if (step.node.op == "Expand" && !to->empty() && from->size() == 1) {
            return filled_with(from->front(), to->front());
        }
        return Known{!to->empty(), *from};
    }
    return Known{is_vector(step, 0), *from};
}

std::optional<Known> filled(const Step& step) {
    const Numbers* size = numbers_of(step, 0);
    return size == nullptr || size->size() != 1 ? std::nullopt
                                                : filled_with(step.node.integer("value", 0), size->front());
}

std::optional<std::int64_t> computed(std::string_view op, std::int64_t a, std::int64_t b) {
    std::int64_t out = 0;
    bool overflows = false;
    if (op == "Add") {
        overflows = __builtin_add_overflow(a, b, &out);
    } else if (op == "Sub") {
        overflows = __builtin_sub_overflow(a, b, &out);
    } else if (op == "Mul") {
        overflows = __builtin_mul_overflow(a, b, &out);
    } else if (op == "Div" || op == "Mod") {
        overflows = b == 0 || b == -1;
        out = overflows ? 0 : op == "Div" ? a / b : a % b;
    } else if (op == "Max" || op == "Min") {
        out = op == "Max" ? std::max(a, b) : std::min(a, b);
    } else if (op == "Equal") {
        out = a == b ? 1 : 0;
    } else if (op == "Less" || op == "LessOrEqual") {
        out = a < b || (op == "LessOrEqual" && a == b) ? 1 : 0;
    } else if (op == "Greater" || op == "GreaterOrEqual") {
        out = a > b || (op == "GreaterOrEqual" && a == b) ? 1 : 0;
    } else {
        overflows = true;
    }
    return overflows ? std::nullopt : std::optional(out);
}

std::optional<Known> combined(const Step& step) {
    const Numbers* a = numbers_of(step, 0);
    const Numbers* b = numbers_of(step, 1);
    if (a == nullptr || b == nullptr || step.inputs.size() != 2 ||
        (a->size() != b->size() && a->size() != 1 && b->size() != 1)) {
        return std::nullopt;
    }
    const bool divides_floats = step.node.op == "Div" && is_floating_point(step.value(0).dtype());
    Known out{is_vector(step, 0) || is_vector(step, 1), {}};
    const std::size_t size = a->size() == 1 ? b->size() : a->size();
    for (std::size_t i = 0; i < size; ++i) {
        const std::int64_t left = (*a)[a->size() == 1 ? 0 : i];
        const std::int64_t right = (*b)[b->size() == 1 ? 0 : i];
        const std::optional<std::int64_t> number = computed(step.node.op, left, right);
        if (!number || (divides_floats && *number * right != left)) {
            return std::nullopt;
        }
        out.numbers.push_back(*number);
    }
    return out;
}

std::optional<Known> chosen(const Step& step) {
    const Numbers* condition = numbers_of(step, 0);
    const Numbers* a = numbers_of(step, 1);
    const Numbers* b = numbers_of(step, 2);
    if (condition == nullptr || a == nullptr || b == nullptr || condition->size() != a->size() ||
        a->size() != b->size()) {
        return std::nullopt;
    }
    Known out{is_vector(step, 1), {}};
    for (std::size_t i = 0; i < a->size(); ++i) {
        out.numbers.push_back((*condition)[i] != 0 ? (*a)[i] : (*b)[i]);
    }
    return out;
}

using Evaluate = std::optional<Known> (*)(const Step& step);
constexpr std::pair<std::string_view, Evaluate> by_operator[] = {
    {"Shape", shape_of},   {"Gather", gather},      {"Concat", concat},     {"Slice", slice},
    {"Squeeze", reshaped}, {"Unsqueeze", reshaped}, {"Reshape", reshaped},  {"Expand", reshaped},
    {"Cast", reshaped},    {"CastLike", reshaped},  {"Identity", reshaped}, {"ConstantOfShape", filled},
    {"Where", chosen},
};

DType type_of_numbers(const Step& step) {
    const std::string& op = step.node.op;
    if (op == "Shape" || op == "Cast" || op == "ConstantOfShape") {
        return DType::int64;
    }
    return step.value(op == "CastLike" || op == "Where" ? 1 : 0).dtype();
}

}  // namespace

std::optional<Datum> played_on_host(const Step& step) {
    const auto* const found =
        std::ranges::find(by_operator, step.node.op, &std::pair<std::string_view, Evaluate>::first);
    const std::optional<Known> known = found == std::end(by_operator) ? combined(step) : found->second(step);
    if (!known || known->numbers.size() > most_numbers || !step.has(0)) {
        return std::nullopt;
    }
    Shape shape;
    if (known->is_vector) {
        shape.push_back(static_cast<std::int64_t>(known->numbers.size()));
    }
    Datum out;
    out.value = step.f.outside(shape, type_of_numbers(step));
    out.strides = contiguous_strides(shape);
    out.numbers = known->numbers;
    out.is_constant = true;
    return out;
}

}  // namespace fsdplan::onnx
