#include "operators/attention.hpp"

namespace fsdplan::attention {
namespace {

Value turned(Eager& f, const Value& x, const Rotation& rotation) {
    Value straight = op::mul(f, x, rotation.cos);
    const std::int64_t half = x.size(-1) / 2;
    Value first = op::narrow_last(f, x, half);
    Value second = op::narrow_last(f, x, x.size(-1) - half);
    second = op::neg(f, std::move(second));
    Value rotated = op::cat_last(f, std::move(second), std::move(first));
    rotated = op::mul(f, std::move(rotated), rotation.sin);
    return op::add(f, std::move(straight), std::move(rotated));
}

struct Sizes {
    std::int64_t batch, heads, kv_heads, queries, keys, dim;
    KernelShape shape(DType dtype, bool causal) const {
        return {.m = queries, .n = keys, .k = dim, .batch = batch * heads, .dtype = dtype, .causal = causal};
    }
};

// Products of one kernel as torch's counter of FLOPs has them: nothing is left out below a causal mask.
constexpr std::int64_t forward_products = 2;
constexpr std::int64_t backward_products = 5;

Operator::Kind kind_of(bool causal) {
    return causal ? Operator::Kind::causal_attention : Operator::Kind::attention;
}

bool has_package(const Eager& f) {
    return f.workload().attention == AttentionImplementation::flash_attention_2;
}

bool is_half(DType dtype) {
    return dtype == DType::bfloat16 || dtype == DType::float16;
}

void require_half(DType dtype) {
    if (!is_half(dtype)) {
        throw Error(ErrorKind::input, "--attention",
                    "flash_attention_2 computes in bfloat16 or float16, found " + std::string(name(dtype)));
    }
}

// FlashAttention 2, torch's own or the package. Source: flash_api.cpp in
// aten/src/ATen/native/transformers/cuda/flash_attn, and flash_attn/flash_attn_interface.py.
/// `by_head`: the operands lie in memory in this order, not as views of [b, s, h * d]; the result does too.
Value flash(Eager& f, const Value& q, const Value& k, const Value& v, const Sizes& s, bool causal,
            bool by_head = false) {
    constexpr std::int64_t block = 128;
    const DType dtype = q.dtype();
    Value out =
        f.run(has_package(f) ? "flash_attn::_flash_attn_forward" : "_scaled_dot_product_flash_attention",
              {{s.batch, s.queries, s.heads, s.dim}, dtype}, {&q, &k, &v}, s.shape(dtype, causal),
              forward_products, kind_of(causal));
    const Value sums = f.also({{s.batch, s.heads, s.queries}, DType::float32});
    const Value seed = f.also({{2}, DType::uint64});
    const Value offset = has_package(f) ? Value() : f.also({{}, DType::uint64});
    const Values saved = has_package(f) ? Values{&q, &k, &v, &out, &sums, &seed}
                                        : Values{&k, &q, &v, &sums, &out, &seed, &offset};
    const std::int64_t wide = s.dim <= block ? round_up(s.dim, 32) : round_up(s.dim, 64);
    f.node(
        {&out}, {&q, &k, &v}, saved,
        [s, dtype, wide, causal, by_head, q_shape = q.shape(), k_shape = k.shape()](Eager& e, Gradients& g) {
            const Value out_copy = by_head ? e.run("clone", {q_shape, dtype}, {}) : Value();
            const std::int64_t rows = round_up(s.queries, block);
            Value of_q = e.run("_flash_attention_backward", {q_shape, dtype}, {&g.of_output()},
                               s.shape(dtype, causal), backward_products, kind_of(causal));
            Value of_k = e.also({k_shape, dtype});
            Value of_v = e.also({k_shape, dtype});
            const Value sum = e.also({{s.batch, s.heads, rows}, DType::float32});
            const Value wide_q = e.also({{s.batch, rows, s.heads, wide}, DType::float32});
            if (s.heads != s.kv_heads) {
                const Shape expanded{s.batch, s.keys, s.heads, s.dim};
                const Value all_k = e.also({expanded, dtype});
                const Value all_v = e.also({expanded, dtype});
                e.run_in_place("sum", {&all_k, &of_k});
                e.run_in_place("sum", {&all_v, &of_v});
            }
            g.give(2, std::move(of_v));
            g.give(1, std::move(of_k));
            g.give(0, std::move(of_q));
        });
    return out;
}

/// What the kernel needs to know how the output and its gradient agree; half precision works it out itself.
Value delta_of(Eager& f, const Sizes& s, const Value& gradient) {
    const Result per_query{{s.batch, s.heads, s.queries}, DType::float32};
    if (gradient.dtype() != DType::float32) {
        return f.also(per_query);
    }
    const Value products = f.run("mul", {gradient.shape(), DType::float32}, {&gradient, &gradient});
    const Value sums = f.run("sum", per_query, {&products});
    return f.run("clone", per_query, {&sums});
}

/// What the backward kernel adds up in: blocks of the gradient of q, each behind a lock, and in half
/// precision with wide heads the gradients of k and v. Tiles as compiled for GPUs since the A100; equal to
/// PyTorch 2.13's for heads of 32 to 256.
std::int64_t efficient_workspace_bytes(const Sizes& s, DType dtype) {
    constexpr std::int64_t narrow = 64;
    constexpr std::int64_t wide = 128;
    constexpr std::int64_t element_bytes = 4;
    constexpr std::int64_t lock_bytes = 16;
    const bool is_narrow = s.dim <= narrow;
    const std::int64_t rows = is_narrow ? narrow : wide;
    const std::int64_t columns = is_half(dtype) && !is_narrow && s.dim <= wide ? wide : narrow;
    const std::int64_t blocks = ceil_div(s.queries, rows) * ceil_div(s.dim, columns);
    const bool adds_up_keys = is_half(dtype) && s.dim > wide;
    const std::int64_t keys =
        adds_up_keys ? 2 * round_up(s.keys, narrow) * round_up(s.dim, rows) * element_bytes : 0;
    return s.batch * s.heads * (blocks * (rows * columns * element_bytes + lock_bytes) + keys);
}

// Memory-efficient attention: float32, or half precision with a bias [b, h, s, t], which is added to the
// scores. Source: aten/src/ATen/native/transformers/cuda/attention.cu and attention_backward.cu.
Value efficient(Eager& f, const Value& q, const Value& k, const Value& v, const Value& bias, const Sizes& s,
                bool causal) {
    constexpr std::int64_t block = 32;
    const DType dtype = q.dtype();
    Values inputs{&q, &k, &v};
    if (bias) {
        inputs.push_back(&bias);
    }
    Value out =
        f.run("_scaled_dot_product_efficient_attention", {{s.batch, s.queries, s.heads, s.dim}, dtype},
              inputs, s.shape(dtype, causal), forward_products, kind_of(causal));
    const Value sums = f.also({{s.batch, s.heads, round_up(s.queries, block)}, DType::float32});
    Values saved{&k, &q, &v, &sums, &out};
    if (bias) {
        saved.insert(saved.begin(), &bias);
    }
    f.node({&out}, inputs, saved,
           [s, dtype, causal, biased = bool(bias), q_shape = q.shape(), k_shape = k.shape()](Eager& e,
                                                                                             Gradients& g) {
               Value of_q = e.run("_efficient_attention_backward", {q_shape, dtype}, {&g.of_output()},
                                  s.shape(dtype, causal), backward_products, kind_of(causal));
               Value of_k = e.also({k_shape, dtype});
               Value of_v = e.also({k_shape, dtype});
               if (biased && g.wanted(3)) {
                   g.give(3, e.also({{s.batch, s.heads, s.queries, s.keys}, dtype}));
               }
               const Value delta = delta_of(e, s, g.of_output());
               const Value workspace = e.also({{efficient_workspace_bytes(s, dtype)}, DType::uint8});
               g.give(2, std::move(of_v));
               g.give(1, std::move(of_k));
               g.give(0, std::move(of_q));
           });
    return out;
}

/// Each head of k or v for as many query heads as share it.
Value repeated(Eager& f, Value x, std::int64_t times) {
    if (times == 1) {
        return x;
    }
    const Shape shape = x.shape();
    Value out = f.run("clone", {{shape[0], shape[1] * times, shape[2], shape[3]}, x.dtype()}, {&x});
    f.node({&out}, {&x}, {}, [shape](Eager& e, Gradients& g) {
        g.give(0, e.run("sum", {shape, g.of_output().dtype()}, {&g.of_output()}));
    });
    return out;
}

// Written out, as sdpa does where no fused kernel shares heads of k and v.
Value written_out(Eager& f, const Value& q, Value k, Value v, const Sizes& s, bool causal) {
    const DType dtype = q.dtype();
    const Value scaled_q = op::mul_scalar(f, q);
    Value mask;
    if (causal) {
        const Value ones = f.run("ones", {{s.queries, s.keys}, DType::boolean}, {});
        const Value lower = f.run("tril", {{s.queries, s.keys}, DType::boolean}, {&ones});
        mask = f.run("where", {{s.queries, s.keys}, dtype}, {&lower});
    }
    k = repeated(f, std::move(k), s.heads / s.kv_heads);
    v = repeated(f, std::move(v), s.heads / s.kv_heads);
    const Shape shape{s.batch, s.heads, s.queries, s.keys};
    Value scores = op::matmul(f, scaled_q, op::mul_scalar(f, k), shape);
    if (mask) {
        f.run_in_place("add_", {&scores, &mask, &scores});
    }
    const Value shares = op::safe_softmax(f, std::move(scores));
    const Value mixed = op::matmul(f, shares, v, Shape{s.batch, s.heads, s.queries, s.dim});
    return op::contiguous(f, mixed);
}

}  // namespace

Rotation rotation(Eager& f, ModuleIndex m, const Value& hidden, std::int64_t width) {
    Rotation out;
    const Value passed = f.call(m, {&hidden}, [&] {
        const std::int64_t sequence = hidden.size(1);
        const Value positions = f.run("arange", {{1, sequence}, DType::int64}, {});
        const Value as_float = op::to(f, positions, DType::float32);
        Value half = f.run("mul", {{1, sequence, width / 2}, DType::float32}, {&as_float});
        const Value both = op::cat_last(f, half, half);
        Value cos = op::mul_scalar(f, f.run("cos", {both.shape(), DType::float32}, {&both}));
        Value sin = op::mul_scalar(f, f.run("sin", {both.shape(), DType::float32}, {&both}));
        out.cos = op::to(f, cos, hidden.dtype());
        out.sin = op::to(f, sin, hidden.dtype());
        return out.cos;
    });
    // Both come from this call.
    out.cos = f.from_last_leaf(out.cos, {1, 1, hidden.size(1), width});
    out.sin = f.from_last_leaf(out.sin, {1, 1, hidden.size(1), width});
    return out;
}

std::pair<Value, Value> rotate(Eager& f, const Value& q, const Value& k, const Rotation& by) {
    Value new_q = turned(f, q, by);
    Value new_k = turned(f, k, by);
    return {std::move(new_q), std::move(new_k)};
}

std::pair<Value, Value> rotate_part(Eager& f, const Value& q, const Value& k, const Rotation& by) {
    const std::int64_t width = by.cos.size(-1);
    const auto part = [&](const Value& x, std::int64_t size) { return op::narrow_last(f, x, size); };
    const Value q_turned = part(q, width);
    const Value q_rest = part(q, q.size(-1) - width);
    const Value k_turned = part(k, width);
    const Value k_rest = part(k, k.size(-1) - width);
    auto [new_q, new_k] = rotate(f, q_turned, k_turned, by);
    new_q = op::cat_last(f, std::move(new_q), q_rest);
    new_k = op::cat_last(f, std::move(new_k), k_rest);
    return {std::move(new_q), std::move(new_k)};
}

Value heads(Eager& f, const Value& x, std::int64_t count, bool laid_out) {
    Value out = f.view(x, Shape{x.size(0), count, x.size(1), x.size(2) / count});
    f.node({&out}, {&x}, {}, [shape = x.shape(), laid_out](Eager& e, Gradients& g) {
        Value& gradient = g.of_output();
        g.give(0,
               laid_out ? e.view(gradient, shape) : e.run("clone", {shape, gradient.dtype()}, {&gradient}));
    });
    return out;
}

Value eager_mask(Eager& f, std::int64_t batch, std::int64_t sequence, DType dtype) {
    const Value allowed = f.run("le", {{batch, 1, sequence, sequence}, DType::boolean}, {});
    return f.run("where", {{batch, 1, sequence, sequence}, dtype}, {&allowed});
}

Value eager(Eager& f, Value q, Value k, Value v, const Value& mask, bool capped) {
    const std::int64_t batch = q.size(0);
    const std::int64_t count = q.size(1);
    const std::int64_t dim = q.size(3);
    const std::int64_t queries = q.size(2);
    const std::int64_t keys = k.size(2);
    const DType dtype = q.dtype();
    const std::int64_t sharing = count / k.size(1);
    k = repeated(f, std::move(k), sharing);
    v = repeated(f, std::move(v), sharing);
    Value laid_out = op::contiguous(f, q);
    Value scores = op::matmul(f, std::move(laid_out), k, Shape{batch, count, queries, keys});
    scores = op::mul_scalar(f, std::move(scores));
    if (capped) {
        scores = op::soft_cap(f, std::move(scores));
    }
    scores = op::add(f, std::move(scores), mask);
    scores = op::to(f, op::softmax(f, std::move(scores), DType::float32), dtype);
    Value mixed = op::matmul(f, scores, v, Shape{batch, count, queries, dim});
    mixed = op::contiguous(f, std::move(mixed));
    return f.view(mixed, Shape{batch, queries, count * dim});
}

// One condition after the other; all sequences read the same one.
Value window_mask(Eager& f, std::int64_t sequence) {
    const Result all{{1, 1, sequence, sequence}, DType::boolean};
    Value within = f.run("gt", all, {});
    const Value in_window = f.run("bitwise_and", all, {&within});
    within.reset();
    const Value causal = f.run("le", all, {});
    return f.run("bitwise_and", all, {&in_window, &causal});
}

Value sdpa(Eager& f, Value q, Value k, Value v, const Value& mask, bool causal) {
    if (has_package(f)) {
        require_half(q.dtype());
    }
    if (mask) {
        const std::int64_t sharing = q.size(1) / k.size(1);
        k = repeated(f, std::move(k), sharing);
        v = repeated(f, std::move(v), sharing);
    }
    const Sizes s{q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3)};
    Value out;
    if (is_half(q.dtype()) && !mask) {
        out = flash(f, q, k, v, s, causal);
    } else if (s.heads != s.kv_heads) {
        out = written_out(f, q, k, v, s, causal);
    } else {
        const Shape each{s.batch, 1, s.queries, s.keys};
        const Value bias = mask ? f.run("where", {each, q.dtype()}, {&mask}) : Value();
        out = efficient(f, q, k, v, bias, s, causal || mask);
    }
    return f.view(out, Shape{s.batch, s.queries, s.heads * s.dim});
}

Value sdpa_by_head(Eager& f, const Value& q, const Value& k, const Value& v) {
    const Sizes s{q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3)};
    Value out;
    if (has_package(f)) {
        require_half(q.dtype());
        out = flash(f, q, k, v, s, true);  // its result is laid out as the next layer wants it
    } else {
        out = is_half(q.dtype()) ? op::contiguous(f, flash(f, q, k, v, s, true, true))
                                 : efficient(f, q, k, v, {}, s, true);
    }
    return f.view(out, Shape{s.batch, s.queries, s.heads * s.dim});
}

Value sdpa_biased(Eager& f, const Value& q, const Value& k, const Value& v, const Value& bias) {
    const Sizes s{q.size(0), q.size(1), k.size(1), q.size(2), k.size(2), q.size(3)};
    Value each = f.view(bias, Shape{s.batch, s.heads, s.queries, s.keys});
    f.node({&each}, {&bias}, {}, [](Eager&, Gradients& g) { g.give(0, std::move(g.of_output())); });
    const Value out = efficient(f, q, k, v, each, s, false);
    return f.view(out, Shape{s.batch, s.queries, s.heads * s.dim});
}

}  // namespace fsdplan::attention
