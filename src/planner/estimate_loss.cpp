#include <algorithm>
#include <cmath>

#include "planner/estimates.hpp"

namespace fsdplan {
namespace {

// Bytes per token and vocabulary entry at the worst moment, beside the logits themselves. Measured with real
// PyTorch: an upcast passed straight to cross_entropy peaks at 12 with the bf16 logits, at 10 after forward;
// the shifted contiguous slice of older models at 18.
struct PerEntry {
    double low;
    double value;
    double high;
};
constexpr PerEntry upcast{8.0, 10.0, 16.0};
constexpr PerEntry shifted{12.0, 14.0, 18.0};
constexpr PerEntry low_precision{2.0, 4.0, 8.0};

Estimate scaled(const PerEntry& bytes, double entries) {
    const auto round = [&](double each) { return static_cast<std::int64_t>(std::llround(each * entries)); };
    return {.value = round(bytes.value), .low = round(bytes.low), .high = round(bytes.high)};
}

}  // namespace

LossBytes estimate_loss(const ModelFacts& facts, const TrainingJob& job) {
    LossBytes out;
    if (!facts.shape.head || job.loss.kind == Loss::Kind::none) {
        out.note =
            facts.shape.head ? "no loss over the vocabulary" : "no output as wide as a vocabulary found";
        return out;
    }
    const std::int64_t vocabulary = facts.shape.layers[*facts.shape.head].out;
    out.logits_numel = checked_mul(job.tokens(), vocabulary, "--batch times --seq times the vocabulary");
    const auto entries = static_cast<double>(out.logits_numel);
    const std::int64_t element = bits(job.param_dtype.value_or(DType::float32)) / 8;
    out.logits = exactly(out.logits_numel * element);
    const std::string size = std::to_string(job.tokens()) + " x " + std::to_string(vocabulary);
    switch (job.loss.kind) {
        case Loss::Kind::cross_entropy:
            out.loss = scaled(upcast, entries);
            out.note = "float32 copy, log-softmax, its gradient; " + size + " logits";
            break;
        case Loss::Kind::shifted:
            out.loss = scaled(shifted, entries);
            out.note = "float32 logits, their copy, log-softmax, its gradient; " + size + " logits";
            break;
        case Loss::Kind::chunked:
            out.loss = scaled(upcast, entries / job.loss.chunks);
            out.note = "one of " + std::to_string(job.loss.chunks) + " pieces of " + size + " logits";
            break;
        case Loss::Kind::low_precision:
            out.loss = scaled(low_precision, entries);
            out.note = "log-softmax, its gradient; " + size + " logits";
            break;
        case Loss::Kind::fused:
            out.logits = scaled({1.0, static_cast<double>(element), 4.0}, entries / job.loss.chunks);
            out.loss = scaled({0.0, 4.0, 8.0}, entries / job.loss.chunks);
            out.note = "logits exist piece by piece";
            break;
        case Loss::Kind::none:
            break;
    }
    return out;
}

}  // namespace fsdplan
