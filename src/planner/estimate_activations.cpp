#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "planner/estimates.hpp"

namespace fsdplan {
namespace {

// What is saved for backward was read off PyTorch 2.13 on plain models with transformers 5.24: per token a
// linear layer its input, once for layers that share it; an activation its input; a product both factors;
// attention (flash) queries, keys, values and its output; a norm of torch its input, one written out in
// Python a float32 copy and the normalised input.

constexpr std::int64_t float32_bytes = 4;

/// Activations that are written out in Python save several intermediate results.
struct PythonActivation {
    std::string_view class_name;
    std::int64_t further_copies;
};
constexpr std::array<PythonActivation, 4> python_activations{{{"NewGELUActivation", 3},
                                                              {"FastGELUActivation", 3},
                                                              {"QuickGELUActivation", 1},
                                                              {"ReLUSquaredActivation", 1}}};

struct PerToken {
    double low = 0.0;
    double value = 0.0;
    double high = 0.0;

    void add(double bytes) { add(bytes, bytes, bytes); }
    void add(double l, double v, double h) {
        low += l;
        value += v;
        high += h;
    }
};

Estimate as_estimate(const PerToken& bytes, double tokens) {
    const auto round = [&](double per_token) {
        return static_cast<std::int64_t>(std::llround(per_token * tokens));
    };
    return {.value = round(bytes.value), .low = round(bytes.low), .high = round(bytes.high)};
}

std::int64_t compute_bytes(const ModuleTree& tree, const TrainingJob& job) {
    const auto stored = [&]() {
        for (const Tensor& tensor : tree.tensors) {
            if (is_floating_point(tensor.dtype)) {
                return tensor.dtype;
            }
        }
        return DType::float32;
    };
    return std::max(1, bits(job.param_dtype ? *job.param_dtype : stored()) / 8);
}

std::int64_t further_copies(const ModuleTree& tree, std::int32_t row) {
    for (const ModuleIndex child : tree.children(static_cast<ModuleIndex>(row))) {
        const std::string_view word = short_name(tree.class_info(child).name);
        const auto known = std::ranges::find(python_activations, word, &PythonActivation::class_name);
        if (known != python_activations.end()) {
            return known->further_copies;
        }
    }
    return 0;
}

/// Share of the tokens that pass through one of `experts`, times how often each does.
double share(const Layer& layer, const ModelFacts& facts) {
    return layer.experts > 1
               ? static_cast<double>(std::min(facts.experts_per_token, layer.experts)) /
                     static_cast<double>(layer.kind == LayerKind::fused_experts ? 1 : layer.experts)
               : 1.0;
}

PerToken of_group(const LinearGroup& group, const ModelShape& shape, const ModuleTree& tree, double element) {
    PerToken saved;
    const auto layer = [&](std::size_t i) -> const Layer& { return shape.layers[group.members[i]]; };
    const std::size_t count = group.members.size();
    const std::size_t branches = group.projects_back ? count - 1 : count;
    std::vector<std::int64_t> inputs;
    for (std::size_t i = 0; i < branches; ++i) {
        // A frozen weight needs no gradient, so nobody keeps its input.
        if (layer(i).trainable && std::ranges::find(inputs, layer(i).in) == inputs.end()) {
            inputs.push_back(layer(i).in);
            saved.add(element * static_cast<double>(layer(i).in));
        }
        const bool read_by_an_operator = count > 1 || layer(i).out > layer(i).in;
        saved.add(read_by_an_operator ? element * static_cast<double>(layer(i).out) : 0.0);
    }
    if (group.projects_back) {
        const auto inner = element * static_cast<double>(group.inner);
        saved.add(inner + (group.gated ? inner : 0.0));
        const double copies = group.attention ? 0.0 : static_cast<double>(further_copies(tree, group.row));
        saved.add(0.0, inner * copies, inner * copies);
    }
    return saved;
}

PerToken of_layer(const Layer& layer, std::int64_t norm_width, double element) {
    PerToken saved;
    const auto in = static_cast<double>(layer.in);
    switch (layer.kind) {
        case LayerKind::norm: {
            const auto width = static_cast<double>(norm_width);
            if (layer.native) {
                saved.add(0.0, element * width, element * width);  // often the residual stream, saved anyway
            } else {
                saved.add(element * width, (float32_bytes + element) * width, 2.0 * float32_bytes * width);
            }
            break;
        }
        case LayerKind::fused_experts: {
            // The gathered tokens, the inner widths, the activation's output, and the output before it is
            // summed.
            const auto inner = static_cast<double>(layer.out);
            saved.add(element * (in + inner), element * (2.0 * in + inner * 4.0 / 3.0),
                      element * (3.0 * in + inner * 2.0));
            break;
        }
        case LayerKind::convolution: {
            saved.add(0.0, element * in, 16.0 * element * (in + static_cast<double>(layer.out)));
            break;
        }
        case LayerKind::other: {
            // A recurrence, a position table, a gate: its width tells little about what it keeps.
            const auto width = std::min(static_cast<double>(layer.numel), 65536.0);
            saved.add(0.0, element * width, 8.0 * element * width);
            break;
        }
        case LayerKind::linear:
        case LayerKind::embedding:
            break;
    }
    return saved;
}

/// Widths of norms: of those inside attention, which see all heads though their weight has one head's width.
std::map<std::int32_t, std::int64_t> norm_widths(const ModuleTree& tree, const ModelShape& shape) {
    std::map<std::int32_t, std::int64_t> widths;
    std::map<std::int32_t, std::size_t> norms_met;
    for (const Layer& layer : shape.layers) {
        if (layer.kind != LayerKind::norm) {
            continue;
        }
        widths[layer.row] = layer.in;
        const std::int32_t parent = tree.parent[static_cast<std::size_t>(layer.row)];
        const auto group = std::ranges::find(shape.groups, parent, &LinearGroup::row);
        const std::size_t position = norms_met[parent]++;
        if (group != shape.groups.end() && group->attention && position < group->members.size()) {
            const std::int64_t out = shape.layers[group->members[position]].out;
            if (out > layer.in && out % layer.in == 0) {
                widths[layer.row] = out;
            }
        }
    }
    return widths;
}

/// Width of what enters a block: of its first norm, else of its first linear layer.
std::int64_t block_width(const ModelShape& shape, std::pair<std::int32_t, std::int32_t> block) {
    std::int64_t linear = 0;
    for (const Layer& layer : shape.layers) {
        if (layer.row < block.first || layer.row >= block.second) {
            continue;
        }
        if (layer.kind == LayerKind::norm) {
            return layer.in;
        }
        linear = linear == 0 && layer.kind == LayerKind::linear ? layer.in : linear;
    }
    return linear;
}

/// Per token what selective checkpointing keeps of a block: attention's output and every other matrix
/// product.
double selective_width(const ModelShape& shape, std::pair<std::int32_t, std::int32_t> block) {
    double width = 0.0;
    bool keep = true;
    for (const LinearGroup& group : shape.groups) {
        if (group.row < block.first || group.row >= block.second) {
            continue;
        }
        width += group.attention ? static_cast<double>(group.inner) : 0.0;
        for (const std::size_t m : group.members) {
            width += keep && shape.layers[m].experts == 1 ? static_cast<double>(shape.layers[m].out) : 0.0;
            keep = !keep;
        }
    }
    return width;
}

RowBytes saved_by_row(const ModuleTree& tree, const ModelFacts& facts, const TrainingJob& job,
                      double element) {
    const auto tokens = static_cast<double>(job.tokens());
    const ModelShape& shape = facts.shape;
    RowBytes rows(tree.size());
    for (const LinearGroup& group : shape.groups) {
        const Layer& first = shape.layers[group.members.front()];
        rows.add(first.row, as_estimate(of_group(group, shape, tree, element), tokens * share(first, facts)));
    }
    const std::map<std::int32_t, std::int64_t> widths = norm_widths(tree, shape);
    for (const Layer& layer : shape.layers) {
        const auto width = widths.find(layer.row);
        const PerToken saved = of_layer(layer, width == widths.end() ? layer.in : width->second, element);
        Estimate bytes = as_estimate(saved, tokens * share(layer, facts));
        if (layer.experts > 1 && !facts.experts_per_token_known) {
            bytes.low /= 2;
            bytes.high *= 4;
        }
        rows.add(layer.row, bytes);
    }
    if (shape.head) {
        const Layer& head = shape.layers[*shape.head];
        PerToken input;
        input.add(head.trainable ? element * static_cast<double>(head.in) : 0.0);
        rows.add(head.row, as_estimate(input, tokens));
    }
    rows.sum_up();
    return rows;
}

/// Rotary tables, masks, statistics and copies that some families make, which widths do not show: recordings
/// of plain models lie up to a ninth above what the rules give.
Estimate with_margin(const Estimate& bytes) {
    return {bytes.value, bytes.low, bytes.high + bytes.high * 3 / 20};
}

/// Autograd records nothing in front of the first trainable parameter. FSDP1 with use_orig_params makes
/// frozen members of a trainable unit views that require grad, so there everything is recorded.
std::int32_t first_recorded_row(const ModuleTree& tree, const TrainingJob& job) {
    if (runtime(job.runtime).wraps_by_policy && job.use_orig_params) {
        return 0;
    }
    for (std::size_t m = 0; m < tree.size(); ++m) {
        for (const TensorIndex t : tree.parameters(static_cast<ModuleIndex>(m))) {
            if (tree.tensors[at(t)].requires_grad) {
                return static_cast<std::int32_t>(m);
            }
        }
    }
    return static_cast<std::int32_t>(tree.size());
}

bool is_checkpointed(const ActivationCheckpointing& mode, std::size_t block) {
    switch (mode.mode) {
        case ActivationCheckpointing::Mode::none:
            return false;
        case ActivationCheckpointing::Mode::every:
            return block % static_cast<std::size_t>(mode.every) == 0;
        case ActivationCheckpointing::Mode::blocks:
        case ActivationCheckpointing::Mode::selective:
            return true;
    }
    return false;
}

}  // namespace

void RowBytes::sum_up() {
    for (std::size_t i = 1; i < before_.size(); ++i) {
        before_[i] = before_[i] + before_[i - 1];
    }
}

Estimate RowBytes::between(std::int32_t begin, std::int32_t end) const {
    const Estimate& a = before(begin);
    const Estimate& b = before(end);
    return {b.value - a.value, b.low - a.low, b.high - a.high};
}

Activations estimate_activations(const ModuleTree& tree, const ModelFacts& facts, const TrainingJob& job) {
    const ModelShape& shape = facts.shape;
    const auto element = static_cast<double>(compute_bytes(tree, job));
    const auto tokens = static_cast<double>(job.tokens());
    const RowBytes saved = saved_by_row(tree, facts, job, element);
    const std::int32_t first = first_recorded_row(tree, job);
    const ActivationCheckpointing& mode = job.activation_checkpointing;
    Activations out{
        .saved = RowBytes(tree.size()), .kept = RowBytes(tree.size()), .recomputed = {}, .note = {}};
    for (std::int32_t row = 0; row < static_cast<std::int32_t>(tree.size()); ++row) {
        out.saved.add(row, with_margin(saved.between(row, row + 1)));
    }
    out.saved.sum_up();
    std::size_t block = 0;
    for (std::int32_t row = 0; row < static_cast<std::int32_t>(tree.size());) {
        const bool in_block = block < shape.blocks.size() && shape.blocks[block].first == row;
        if (in_block ? shape.blocks[block].second <= first : row < first) {
            row = in_block ? shape.blocks[block++].second : row + 1;
            continue;
        }
        if (!in_block || !is_checkpointed(mode, block)) {
            const std::int32_t end = in_block ? shape.blocks[block].second : row + 1;
            for (; row < end; ++row) {
                out.kept.add(row, with_margin(saved.between(row, row + 1)));
            }
            block += in_block ? 1 : 0;
            continue;
        }
        const auto [begin, end] = shape.blocks[block];
        const bool selective = mode.mode == ActivationCheckpointing::Mode::selective;
        const double width = static_cast<double>(block_width(shape, shape.blocks[block])) +
                             (selective ? selective_width(shape, shape.blocks[block]) : 0.0);
        PerToken input;
        input.add(element * width);
        const Estimate kept = as_estimate(input, tokens);
        const Estimate whole = with_margin(saved.between(begin, end));
        out.kept.add(begin, kept);
        const std::int64_t already = selective ? kept.value : 0;
        out.recomputed.push_back({begin,
                                  end,
                                  {std::max<std::int64_t>(0, whole.value - already),
                                   std::max<std::int64_t>(0, whole.low - already),
                                   std::max<std::int64_t>(0, whole.high - already)},
                                  kept});
        row = end;
        ++block;
    }
    out.kept.sum_up();
    out.note = "from layer classes and shapes; attention without stored scores, no dropout";
    if (job.attention == AttentionImplementation::eager) {
        out.note += "; what eager attention keeps of its scores is not counted";
    }
    if (mode.mode != ActivationCheckpointing::Mode::none && shape.blocks.empty()) {
        out.note += "; no repeated blocks found, so nothing is checkpointed";
    }
    if (shape.has_unknown) {
        out.note += "; some classes are not known here";
    }
    if (shape.has_convolutions) {
        out.note += "; image sizes are not known";
    }
    if (shape.has_experts) {
        out.note +=
            facts.experts_per_token_known
                ? "; " + std::to_string(facts.experts_per_token) + " experts a token"
                : "; experts a token not known, " + std::to_string(facts.experts_per_token) + " assumed";
    }
    return out;
}

}  // namespace fsdplan
