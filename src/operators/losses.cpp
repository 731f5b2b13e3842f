#include "operators/losses.hpp"

#include <algorithm>
#include <bit>

#include "operators/linear_cross_entropy.hpp"

namespace fsdplan {
namespace {

/// Labels moved by one: padded, then cut off in front. Those of one sequence stay contiguous.
Value moved_labels(Eager& f, std::int64_t batch, std::int64_t sequence) {
    const Value padded = f.run("constant_pad_nd", {{batch, sequence + 1}, DType::int64}, {});
    const Shape flat{batch * sequence};
    return batch > 1 ? f.run("clone", {flat, DType::int64}, {&padded}) : f.view(padded, flat);
}

/// `wide`: the model raises them to float32 before anybody else sees them.
Value logits_of(Eager& f, ModuleIndex head, const Value& hidden, bool capped, bool wide = false) {
    Value logits = layer::linear(f, head, hidden);
    if (capped) {
        logits = op::soft_cap(f, std::move(logits));
    }
    if (wide) {
        logits = op::to(f, std::move(logits), DType::float32);
    }
    f.use_as(logits, Storage::Use::logits);
    return logits;
}

/// ForCausalLMLoss of transformers; `dtype`: of the loss.
Value loss_of_whole(Eager& f, const Value& logits, DType dtype) {
    f.begin_loss();
    const std::int64_t batch = logits.size(0);
    const std::int64_t sequence = logits.size(1);
    const Value wide = op::to(f, logits, dtype);
    const Value labels = moved_labels(f, batch, sequence);
    const Value flat = f.view(wide, Shape{batch * sequence, wide.size(2)});
    return op::cross_entropy(f, flat, labels);
}

/// The loss of transformers before 4.46, of all logits but each sequence's last.
Value loss_of_shifted(Eager& f, const Value& logits) {
    f.begin_loss();
    const Result whole{logits.shape(), logits.dtype()};
    const std::int64_t rows = logits.size(0) * (logits.size(1) - 1);
    Value shifted = f.run("clone", {{rows, logits.size(2)}, logits.dtype()}, {&logits});
    f.node({&shifted}, {&logits}, {},
           [whole](Eager& e, Gradients& g) { g.give(0, e.run("slice_backward", whole, {&g.of_output()})); });
    const Value labels = f.run("clone", {{rows}, DType::int64}, {});
    return op::cross_entropy(f, std::move(shifted), labels);
}

/// Labels that count, as an integer.
Value counted_labels(Eager& f, std::int64_t batch, std::int64_t sequence) {
    const Value counted = f.run("ne", {{batch, sequence}, DType::boolean}, {});
    Value total = f.run("sum", {{}, DType::int64}, {&counted});
    const Value as_integers = f.also({{batch, sequence}, DType::int64});
    return total;
}

/// TransformerDecoder.chunked_output and CEWithChunkedOutputLoss of torchtune.
Value loss_of_chunks(Eager& f, ModuleIndex head, const Value& hidden, bool capped) {
    const std::int64_t batch = hidden.size(0);
    std::vector<Value> logits;
    for (const Value& chunk : op::chunk_sequence(f, hidden, f.workload().loss.chunks)) {
        // The rows of several sequences do not lie behind one another.
        logits.push_back(logits_of(f, head, batch > 1 ? op::contiguous(f, chunk) : chunk, capped));
    }
    f.begin_loss();
    f.keep_no_logits();
    const Value total = counted_labels(f, batch, hidden.size(1));
    std::vector<Value> labels;
    for (const Value& chunk : logits) {
        const Shape rows{batch * chunk.size(1)};
        labels.push_back(batch > 1 ? f.run("clone", {rows, DType::int64}, {})
                                   : f.outside(rows, DType::int64));
    }
    Value sum;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const Value flat = f.view(logits[i], Shape{labels[i].size(0), logits[i].size(2)});
        const Value loss = op::cross_entropy(f, op::to(f, flat, DType::float32), labels[i]);
        sum = sum ? op::add(f, std::move(sum), loss) : op::add_scalar(f, loss);
    }
    return op::mul_scalar(f, std::move(sum));  // by one over `total`
}

/// Losses that multiply with the head's weight themselves.
Value loss_with_head(Eager& f, ModuleIndex head, const Value& hidden) {
    const Loss& loss = f.workload().loss;
    Value out = f.call(head, {&hidden}, [&] {
        const Value labels = moved_labels(f, hidden.size(0), hidden.size(1));
        const Value rows = f.view(hidden, Shape{labels.size(0), hidden.size(2)});
        const Value weight = f.parameter(head, "weight");
        const Value bias = f.has_parameter(head, "bias") ? f.parameter(head, "bias") : Value();
        return loss.kind == Loss::Kind::cut
                   ? op::cut_cross_entropy(f, rows, weight, labels)
                   : op::liger_cross_entropy(
                         f, rows, weight, bias, labels,
                         fused_chunk_rows(loss, rows.size(0), rows.size(1), weight.size(0)));
    });
    f.begin_loss();
    f.keep_no_logits();
    return out;
}

}  // namespace

Value head_and_loss(Eager& f, ModuleIndex head, const Value& hidden, bool capped) {
    using Kind = Loss::Kind;
    Kind kind = f.workload().loss.kind;
    const bool takes_weight = kind == Kind::fused || kind == Kind::cut;
    if (takes_weight && !f.has_parameter(head, "weight")) {
        f.note("a head with an adapter: its logits are counted whole");
        kind = Kind::cross_entropy;
    }
    switch (kind) {
        case Kind::chunked:
            return loss_of_chunks(f, head, hidden, capped);
        case Kind::fused:
        case Kind::cut:
            return loss_with_head(f, head, hidden);
        case Kind::shifted:
            return loss_of_shifted(f, logits_of(f, head, hidden, capped, true));
        default:
            break;
    }
    const Value logits = logits_of(f, head, hidden, capped);
    return loss_of_whole(f, logits, kind == Kind::low_precision ? logits.dtype() : DType::float32);
}

Value token_loss(Eager& f, const Value& logits) {
    f.begin_loss();
    const Value flat = f.view(logits, Shape{logits.size(0) * logits.size(1), logits.size(2)});
    return op::cross_entropy(f, flat, f.outside({flat.size(0)}, DType::int64));
}

Value class_loss(Eager& f, const Value& logits) {
    f.begin_loss();
    return op::cross_entropy(f, logits, f.outside({logits.size(0)}, DType::int64));
}

std::int64_t fused_chunk_rows(const Loss& loss, std::int64_t rows, std::int64_t width, std::int64_t classes) {
    if (loss.chunks > 0) {
        return ceil_div(rows, loss.chunks);
    }
    const std::int64_t chunk = ceil_div(rows, ceil_div(classes, width));
    return std::min(static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(chunk))), rows);
}

}  // namespace fsdplan
