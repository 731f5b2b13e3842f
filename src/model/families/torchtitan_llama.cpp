#include <algorithm>
#include <utility>

#include "model/blocks.hpp"
#include "model/family.hpp"
#include "operators/language_model.hpp"

// Llama as torchtitan trains it, from the fields of its TransformerModelArgs. Source:
// torchtitan/models/llama/model.py and torchtitan/models/norms.py; what they allocate was recorded
// (tests/golden/cuda_memory, titan-*).
namespace fsdplan::builtin::family {
namespace {

constexpr ClassSpace space{"torchtitan.models.llama.model", {}};
constexpr ClassSpace norms{"torchtitan.models.norms", {}};

struct Sizes {
    std::int64_t width, layers, heads, kv_heads, vocab, inner, positions;
    bool fused_norms;

    std::int64_t head_width() const { return width / heads; }
};

/// Two thirds of four times the width, stretched and rounded up.
std::int64_t inner_width(const Config& config, std::int64_t width) {
    constexpr double most = 1000.0;
    const double multiplier = config.number("ffn_dim_multiplier", 1.0);
    if (!(multiplier > 0.0 && multiplier <= most)) {
        config.refuse("ffn_dim_multiplier", "expected a positive number of at most 1000");
    }
    const std::int64_t two_thirds = 2 * config.product(4, width) / 3;
    const auto stretched = static_cast<std::int64_t>(multiplier * static_cast<double>(two_thirds));
    return round_up(std::max(stretched, std::int64_t{1}), config.size("multiple_of", 256));
}

/// torchtitan's norm_type; LayerNorm is not described.
bool has_fused_norms(const Config& config) {
    const std::string type = config.text("norm_type", "rmsnorm");
    if (type != "rmsnorm" && type != "fused_rmsnorm") {
        config.refuse("norm_type", R"(expected "rmsnorm" or "fused_rmsnorm", found )" + json::quote(type));
    }
    return type == "fused_rmsnorm";
}

Sizes sizes_of(const Config& config) {
    const std::int64_t width = config.size("dim", 4096);
    const std::int64_t heads = config.size("n_heads", 32);
    config.require_divides(heads, "n_heads", width, "dim");
    if (width / heads % 2 != 0) {
        config.refuse("n_heads", "leaves each head an odd width; rotary embedding needs pairs");
    }
    const std::int64_t kv_heads = config.optional_size("n_kv_heads").value_or(heads);
    config.require_divides(kv_heads, "n_kv_heads", heads, "n_heads");
    return {.width = width,
            .layers = config.count("n_layers", 32),
            .heads = heads,
            .kv_heads = kv_heads,
            .vocab = config.size("vocab_size", 32000),
            .inner = inner_width(config, width),
            .positions = config.size("max_seq_len", 2048),
            .fused_norms = has_fused_norms(config)};
}

/// What differs between versions of its code.
struct Version {
    std::string_view name;
    bool folds_tokens;     ///< layers see batch and sequence as one dimension
    bool returns_float32;  ///< the model raises the logits, not the loss
};
constexpr std::array<Version, 3> versions{
    {{"2024-03", true, true}, {"2024-04", false, true}, {"2024-12", false, false}}};

const Version& version_of(const Config& config) {
    const std::string name = config.text("torchtitan_version", versions.back().name);
    const auto found = std::ranges::find(versions, name, &Version::name);
    if (found == versions.end()) {
        config.refuse("torchtitan_version",
                      R"(expected "2024-03", "2024-04" or "2024-12", found )" + json::quote(name));
    }
    return *found;
}

void norm(Scope parent, std::string name, const Sizes& s) {
    weight_norm(parent, std::move(name), norms.plain("RMSNorm"), s.width);
}

void fill_block(Scope block, const Sizes& s) {
    const Scope attention = block.child("attention", space.plain("Attention"));
    linear(attention, "wq", s.width, s.heads * s.head_width(), false);
    linear(attention, "wk", s.width, s.kv_heads * s.head_width(), false);
    linear(attention, "wv", s.width, s.kv_heads * s.head_width(), false);
    linear(attention, "wo", s.heads * s.head_width(), s.width, false);
    const Scope feed_forward = block.child("feed_forward", space.plain("FeedForward"));
    linear(feed_forward, "w1", s.width, s.inner, false);
    linear(feed_forward, "w2", s.inner, s.width, false);
    linear(feed_forward, "w3", s.width, s.inner, false);
    norm(block, "attention_norm", s);
    norm(block, "ffn_norm", s);
}

void build(const Config& config, const Place& place) {
    const Sizes s = sizes_of(config);
    version_of(config);
    const Scope model = place.create(space.plain("Transformer"));
    const Scope tokens = embedding(model, "tok_embeddings", s.vocab, s.width);
    model.buffer("freqs_cis", {s.positions, s.head_width() / 2}, DType::complex64, false);
    const Scope layers = model.child("layers", classes::module_dict());
    for (std::int64_t i = 0; i < s.layers; ++i) {
        fill_block(layers.child(std::to_string(i), space.plain("TransformerBlock")), s);
    }
    norm(model, "norm", s);
    const Scope output = linear(model, "output", s.width, s.vocab, false);
    if (config.flag("enable_weight_tying", false)) {
        output.tie("weight", tokens, "weight");
    }
}

// What it computes.

/// One Triton kernel, which keeps its input and a number for each row.
Value fused_rms_norm(Eager& f, const Value& x, const Value& weight) {
    const Result like{x.shape(), x.dtype()};
    const std::int64_t width = x.size(-1);
    Value out = f.run("rms_norm_fwd", like, {&x});
    const Value scales = f.also({{x.numel() / width}, DType::float32});
    f.node({&out}, {&x, &weight}, {&x, &scales},
           [like, width, sms = f.workload().multiprocessors](Eager& e, Gradients& g) {
               Value of_x = e.run("rms_norm_bwd", like, {&g.of_output()});
               const Value shares = e.also({{sms, width}, DType::float32});
               const Value sum = e.run("sum", {{width}, DType::float32}, {&shares});
               g.give(1, e.run("_to_copy", {{width}, like.dtype}, {&sum}));
               g.give(0, std::move(of_x));
           });
    return out;
}

Value rms_norm(Eager& f, ModuleIndex m, const Value& x, const Sizes& s) {
    return f.call(m, {&x}, [&] {
        const Value weight = f.parameter(m, "weight");
        if (s.fused_norms) {
            return fused_rms_norm(f, x, weight);
        }
        const Value wide = op::to(f, x, DType::float32);
        Value scale = op::rsqrt(f, op::add_scalar(f, op::mean_last(f, op::power(f, wide))));
        Value scaled = op::mul(f, wide, std::move(scale));
        scaled = op::to(f, std::move(scaled), x.dtype());
        return op::mul(f, std::move(scaled), weight);
    });
}

/// x [batch, sequence, heads, dim] turned as complex numbers in float32.
Value rotated(Eager& f, const Value& x, const Value& frequencies) {
    const Value wide = op::to(f, x, DType::float32);
    Value turned = f.run("mul", {x.shape(), DType::float32}, {&wide, &frequencies});
    f.node({&turned}, {&wide}, {}, [of = frequencies.shape()](Eager& e, Gradients& g) {
        const Value& gradient = g.of_output();
        const Value conjugate = e.run("resolve_conj", {of, DType::complex64}, {});
        g.give(0, e.run("mul", {gradient.shape(), DType::float32}, {&gradient, &conjugate}));
    });
    return op::to(f, turned, x.dtype());
}

/// Each head of x [batch, sequence, heads, dim] as often as query heads share it.
Value repeated(Eager& f, const Value& x, std::int64_t times) {
    if (times == 1) {
        return x;
    }
    const Shape shape = x.shape();
    Value out = f.run("clone", {{shape[0], shape[1], shape[2] * times, shape[3]}, x.dtype()}, {&x});
    f.node({&out}, {&x}, {}, [shape](Eager& e, Gradients& g) {
        g.give(0, e.run("sum", {shape, g.of_output().dtype()}, {&g.of_output()}));
    });
    return out;
}

/// [batch, sequence, heads, dim] as [batch, heads, sequence, dim], a view.
Value transposed(Eager& f, const Value& x) {
    return op::reshape(f, x, {x.size(0), x.size(2), x.size(1), x.size(3)});
}

Value attend(Eager& f, ModuleIndex m, const Value& x, const Value& frequencies, const Sizes& s) {
    return f.call(m, {&x, &frequencies}, [&] {
        const auto projected = [&](std::string_view name, std::int64_t heads) {
            const Value flat = layer::linear(f, layer::child(f, m, name), x);
            return op::reshape(f, flat, {f.workload().batch, f.workload().sequence, heads, s.head_width()});
        };
        Value v;  // Python lets go of its locals from the first on
        Value k;
        Value q = projected("wq", s.heads);
        k = projected("wk", s.kv_heads);
        v = projected("wv", s.kv_heads);
        Value turned_q = rotated(f, q, frequencies);
        k = rotated(f, k, frequencies);
        q = std::move(turned_q);
        Value all_k = repeated(f, k, s.heads / s.kv_heads);
        v = repeated(f, v, s.heads / s.kv_heads);
        k = std::move(all_k);
        q = transposed(f, q);
        k = transposed(f, k);
        v = transposed(f, v);
        const Value mixed = attention::sdpa(f, q, k, v, {}, true);
        return layer::linear(f, layer::child(f, m, "wo"), op::reshape(f, mixed, x.shape()));
    });
}

Value feed_forward(Eager& f, ModuleIndex m, const Value& x) {
    return f.call(m, {&x}, [&] {
        Value gate = layer::activate(f, layer::linear(f, layer::child(f, m, "w1"), x), "silu");
        const Value both = op::mul(f, std::move(gate), layer::linear(f, layer::child(f, m, "w3"), x));
        return layer::linear(f, layer::child(f, m, "w2"), both);
    });
}

Value block(Eager& f, ModuleIndex m, const Value& x, const Value& frequencies, const Sizes& s) {
    return f.call(m, {&x, &frequencies}, [&] {
        Value hidden = rms_norm(f, layer::child(f, m, "attention_norm"), x, s);
        hidden = attend(f, layer::child(f, m, "attention"), hidden, frequencies, s);
        const Value residual = op::add(f, x, std::move(hidden));
        hidden = rms_norm(f, layer::child(f, m, "ffn_norm"), residual, s);
        hidden = feed_forward(f, layer::child(f, m, "feed_forward"), hidden);
        return op::add(f, residual, std::move(hidden));
    });
}

/// [batch, sequence, vocabulary].
Value logits_of(Eager& f, ModuleIndex top, const Value& ids, const Sizes& s, const Version& version) {
    return f.call(top, {&ids}, [&] {
        Value hidden = layer::embedding(f, layer::child(f, top, "tok_embeddings"), ids);
        const Shape shape = hidden.shape();
        const Value frequencies = f.outside({ids.size(1), s.head_width() / 2}, DType::complex64);
        if (version.folds_tokens) {
            hidden = op::reshape(f, hidden, {shape[0] * shape[1], shape[2]});
        }
        for (const ModuleIndex m : f.tree().children(layer::child(f, top, "layers"))) {
            hidden = block(f, m, hidden, frequencies, s);
        }
        hidden = rms_norm(f, layer::child(f, top, "norm"), hidden, s);
        hidden = op::reshape(f, hidden, shape);
        Value logits = layer::linear(f, layer::child(f, top, "output"), hidden);
        if (version.returns_float32) {
            logits = op::to(f, std::move(logits), DType::float32);
        }
        f.use_as(logits, Storage::Use::logits);
        return logits;
    });
}

// The loop works out the loss, in float32.
Value forward(const Config& config, Eager& f, ModuleIndex top) {
    if (f.workload().attention != AttentionImplementation::sdpa ||
        f.workload().loss.kind != Loss::Kind::cross_entropy) {
        return {};
    }
    const Value ids = token_ids(f);
    Value logits = logits_of(f, top, ids, sizes_of(config), version_of(config));
    const Value labels = f.outside({logits.size(0) * logits.size(1)}, DType::int64);
    logits = op::reshape(f, logits, {labels.size(0), logits.size(2)});
    return op::cross_entropy(f, op::to(f, std::move(logits), DType::float32), labels);
}

constexpr std::array<Architecture, 1> architectures{Architecture{"Transformer", build}};
constexpr std::array<std::string_view, 1> model_types{"torchtitan_llama"};
constexpr std::array<std::string_view, 1> no_split{"TransformerBlock"};

}  // namespace

extern const FamilyInfo torchtitan_llama;
constinit const FamilyInfo torchtitan_llama{
    .model_types = model_types,
    .library = "torchtitan",
    .architectures = architectures,
    .backbone = "Transformer",
    .no_split_classes = no_split,
    .longest_sequence = [](const Config& config) { return config.optional_size("max_seq_len"); },
    .forward = forward,
};

}  // namespace fsdplan::builtin::family
