#include "operators/linear_cross_entropy.hpp"

#include <algorithm>

namespace fsdplan::op {
namespace {

bool is_half(DType dtype) {
    return dtype == DType::bfloat16 || dtype == DType::float16;
}

/// Gradients that forward has worked out.
struct Worked {
    Value of_rows;
    Value of_weight;
    Value of_bias;
};

Value zeros_like(Eager& f, const Value& x, Storage::Use use) {
    Value out = f.run("zeros_like", {x.shape(), x.dtype()}, {});
    f.use_as(out, use);
    return out;
}

/// One piece of the logits, whose gradient takes their place, and what it adds to the gradients.
void add_piece(Eager& f, const Value& logits, const Value& weight, const Worked& into) {
    const std::int64_t flops = 2 * logits.numel() * weight.size(1);
    f.run_in_place("mm", {&logits, &weight}, flops);
    f.run_in_place("liger_cross_entropy_kernel", {&logits, &logits});
    f.run_in_place("mm", {&logits, &weight}, flops);  // into a slice of the rows' gradient
    if (into.of_weight && is_half(weight.dtype())) {
        f.run_in_place("addmm", {&logits, &into.of_weight, &into.of_weight}, flops);
    } else if (into.of_weight) {
        const Value product = f.run("mm", {weight.shape(), weight.dtype()}, {&logits}, flops);
        f.run_in_place("add_", {&product, &into.of_weight, &into.of_weight});
    }
    if (into.of_bias) {
        const Value sum = f.sum_to(logits, into.of_bias.shape());
        f.run_in_place("add_", {&sum, &into.of_bias});
    }
}

/// torch.argsort(average).to(torch.int32)
Value order_of(Eager& f, const Result& average) {
    Value indices;
    {
        const Value sorted = f.run("sort", average, {});
        indices = f.also({average.shape, DType::int64});
        const Value scratch = f.also({average.shape, DType::int64});
    }
    return f.run("_to_copy", {average.shape, DType::int32}, {&indices});
}

}  // namespace

Value liger_cross_entropy(Eager& f, const Value& rows, const Value& weight, const Value& bias,
                          const Value& target, std::int64_t chunk) {
    const std::int64_t count = rows.size(0);
    const std::int64_t classes = weight.size(0);
    Worked worked{.of_rows = zeros_like(f, rows, Storage::Use::temporary)};
    if (weight.requires_grad()) {
        worked.of_weight = zeros_like(f, weight, Storage::Use::temporary);
    }
    if (bias) {
        worked.of_bias = zeros_like(f, bias, Storage::Use::temporary);
    }
    const Value each = f.run("zeros", {{count}, DType::float32}, {});
    const Value counted = f.run("ne", {{count}, DType::boolean}, {&target});
    {
        const Value total = f.run("sum", {{}, DType::int64}, {&counted});
        const Value as_integers = f.also({{count}, DType::int64});
    }
    {
        const Value logits = f.also({{chunk, classes}, rows.dtype()});
        f.use_as(logits, Storage::Use::logits);
        for (std::int64_t begin = 0; begin < count; begin += chunk) {
            add_piece(f, f.view(logits, Shape{std::min(chunk, count - begin), classes}), weight, worked);
        }
    }
    Value loss = f.run("sum", {{}, DType::float32}, {&rows, &each});
    Values inputs{&rows, &weight};
    if (bias) {
        inputs.push_back(&bias);
    }
    f.node({&loss}, inputs, {}, [worked](Eager&, Gradients& g) mutable {
        g.give(0, std::move(worked.of_rows));
        g.give(1, std::move(worked.of_weight));
        if (worked.of_bias) {
            g.give(2, std::move(worked.of_bias));
        }
    });
    return loss;
}

Value cut_cross_entropy(Eager& f, const Value& rows, const Value& weight, const Value& target) {
    constexpr std::int64_t block_width = 64;  // columns that are added under one lock
    const std::int64_t count = rows.size(0);
    const std::int64_t flops = 2 * rows.numel() * weight.size(0);
    const Result per_row{{count}, DType::float32};
    const Result per_class{{weight.size(0)}, DType::float32};
    const Value counted = f.run("nonzero", {{count}, DType::int32}, {&target});
    const Value sums = f.run("cce_lse_forward", per_row, {&rows, &weight}, flops);
    const Value average = f.also(per_class);
    Value loss;
    {
        const Value losses = f.run("indexed_neg_dot_forward", per_row, {&rows});
        loss = f.run("mean", {{}, DType::float32}, {&losses});
    }
    // The node's own attributes stay as long as the graph: what is captured besides.
    f.node({&loss}, {&rows, &weight}, {&rows, &sums, &average},
           [of_rows_like = Result{rows.shape(), rows.dtype()},
            of_weight_like = Result{weight.shape(), rows.dtype()}, per_row, per_class, flops,
            kept = std::vector<Value>{target, counted}](Eager& e, Gradients& g) {
               const Value order = order_of(e, per_class);
               Value of_rows = e.run("cce_backward", of_rows_like, {&order}, 3 * flops);
               Value of_weight = g.wanted(1) ? e.also(of_weight_like) : Value();
               const std::int64_t blocks = ceil_div(of_rows_like.shape.back(), block_width);
               const auto locks = [&](const Result& each) {
                   return e.also({{round_up(each.shape.front(), blocks)}, DType::int32});
               };
               const Value row_locks = locks(per_row);
               const Value class_locks = locks(per_class);
               g.give(0, std::move(of_rows));
               g.give(1, std::move(of_weight));
           });
    return loss;
}

}  // namespace fsdplan::op
