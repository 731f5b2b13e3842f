#include "operators/layers.hpp"

#include "model/four_bit.hpp"

namespace fsdplan::layer {
namespace {

Value optional_parameter(Eager& f, ModuleIndex m, std::string_view name) {
    return f.has_parameter(m, name) ? f.parameter(m, name) : Value();
}

// A frozen weight [out, in] of four bits, packed: both directions unpack it for themselves. Source:
// bitsandbytes' MatMul4Bit.
Value four_bit_linear(Eager& f, const Value& x, const Value& packed) {
    constexpr std::int64_t weight_bits = 4;
    const std::int64_t in = x.size(-1);
    const std::int64_t out = packed.numel() * bits(packed.dtype()) / weight_bits / in;
    const KernelShape forward{.m = x.numel() / in, .n = out, .k = in, .dtype = x.dtype()};
    const Result whole{{out, in}, x.dtype()};
    const Result like{x.shape(), x.dtype()};
    Shape shape = x.shape();
    shape.back() = out;
    Value weight = f.run("dequantize_4bit", whole, {&packed});
    Value result = f.run("mm", {shape, x.dtype()}, {&x, &weight}, forward);
    weight.reset();
    f.node({&result}, {&x}, {}, [whole, like, forward](Eager& e, Gradients& g) {
        const Value again = e.run("dequantize_4bit", whole, {});
        const KernelShape backward{.m = forward.m, .n = forward.k, .k = forward.n, .dtype = forward.dtype};
        g.give(0, e.run("mm", like, {&g.of_output(), &again}, backward));
    });
    return result;
}

Value adapted(Eager& f, ModuleIndex m, const Value& x) {
    Value result = linear(f, child(f, m, "base_layer"), x);
    const std::span<const std::string> adapters = f.tree().child_names(child(f, m, "lora_A"));
    for (const std::string& adapter : adapters) {
        const ModuleIndex down = child(f, child(f, m, "lora_A"), adapter);
        const ModuleIndex up = child(f, child(f, m, "lora_B"), adapter);
        const ModuleIndex thinning = child(f, child(f, m, "lora_dropout"), adapter);
        const bool thins = short_name(f.tree().class_info(thinning).name) == "Dropout";  // else Identity
        const Value cast = op::to(f, x, f.parameter(down, "weight").dtype());
        const Value kept = dropout(f, thinning, cast, thins ? 1.0 : 0.0);  // how much changes no size
        const Value low = linear(f, down, kept);
        Value high = linear(f, up, low);
        Value scaled = op::mul_scalar(f, std::move(high));
        result = op::add(f, std::move(result), std::move(scaled));
    }
    return result;
}

// x -> 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), written out.
Value gelu_new(Eager& f, const Value& x) {
    Value half = op::mul_scalar(f, x);
    Value inner = op::mul_scalar(f, op::power(f, x));
    inner = op::add(f, x, std::move(inner));
    inner = op::mul_scalar(f, std::move(inner));
    inner = op::tanh(f, std::move(inner));
    inner = op::add_scalar(f, std::move(inner));
    return op::mul(f, std::move(half), std::move(inner));
}

/// x over the root of the mean of its squares.
Value to_unit_square(Eager& f, const Value& x) {
    Value scale = op::rsqrt(f, op::add_scalar(f, op::mean_last(f, op::power(f, x))));
    return op::mul(f, x, std::move(scale));
}

}  // namespace

ModuleIndex child(const Eager& f, ModuleIndex m, std::string_view name) {
    if (const std::optional<ModuleIndex> found = f.child(m, name)) {
        return *found;
    }
    throw Error(ErrorKind::input, f.tree().path(m), "has no module \"" + std::string(name) + '"');
}

Value linear(Eager& f, ModuleIndex m, const Value& x) {
    return f.call(m, {&x}, [&] {
        if (f.child(m, "base_layer")) {
            return adapted(f, m, x);
        }
        const Value weight = f.parameter(m, "weight");
        if (short_name(f.tree().class_info(m).name) == four_bit_class) {
            return four_bit_linear(f, x, weight);
        }
        const Value bias = optional_parameter(f, m, "bias");
        const bool transposed = short_name(f.tree().class_info(m).name) == "Conv1D";
        return transposed ? op::linear_transposed(f, x, weight, bias) : op::linear(f, x, weight, bias);
    });
}

Value embedding(Eager& f, ModuleIndex m, const Value& ids) {
    return f.call(m, {&ids}, [&] { return op::embedding(f, ids, f.parameter(m, "weight")); });
}

Value input_embedding(Eager& f, ModuleIndex m, const Value& ids, bool scaled) {
    return f.call(m, {&ids}, [&] {
        Value rows = op::embedding(f, ids, f.parameter(m, "weight"));
        rows = scaled ? op::mul_scalar(f, std::move(rows)) : rows;
        if (f.workload().input_gradients && !rows.requires_grad()) {
            f.require_gradient(rows);
        }
        return rows;
    });
}

Value norm(Eager& f, ModuleIndex m, const Value& x) {
    return f.call(m, {&x}, [&] {
        return op::layer_norm(f, x, optional_parameter(f, m, "weight"), optional_parameter(f, m, "bias"));
    });
}

Value rms_norm(Eager& f, ModuleIndex m, const Value& x) {
    return f.call(m, {&x}, [&] {
        Value hidden = op::to(f, x, DType::float32);
        hidden = to_unit_square(f, hidden);
        return op::mul(f, f.parameter(m, "weight"), op::to(f, hidden, x.dtype()));
    });
}

Value rms_norm_plus_one(Eager& f, ModuleIndex m, const Value& x) {
    return f.call(m, {&x}, [&] {
        Value scaled = to_unit_square(f, op::to(f, x, DType::float32));
        Value weight = op::add_scalar(f, op::to(f, f.parameter(m, "weight"), DType::float32));
        scaled = op::mul(f, std::move(scaled), std::move(weight));
        return op::to(f, std::move(scaled), x.dtype());
    });
}

Value dropout(Eager& f, ModuleIndex m, const Value& x, double p) {
    return f.call(m, {&x}, [&] { return op::dropout(f, x, p); });
}

Value activate(Eager& f, const Value& x, std::string_view name) {
    if (name == "gelu_new" || name == "gelu_python_tanh") {
        return gelu_new(f, x);
    }
    if (name == "relu" || name == "sigmoid" || name == "tanh") {
        return op::activation_by_result(f, x, name);
    }
    return op::activation(f, x, name.starts_with("gelu") ? "gelu" : name);
}

Value activation(Eager& f, ModuleIndex m, const Value& x, std::string_view name) {
    return f.call(m, {&x}, [&] { return activate(f, x, name); });
}

}  // namespace fsdplan::layer
