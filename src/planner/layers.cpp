#include "planner/layers.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "fsdplan/wrap.hpp"

namespace fsdplan {
namespace {

constexpr std::string_view torch_embedding = "torch.nn.modules.sparse.Embedding";
constexpr std::string_view torch_convolution = "torch.nn.modules.conv._ConvNd";
constexpr std::string_view torch_norms = "torch.nn.modules.normalization.";
constexpr std::string_view torch_batch_norm = "torch.nn.modules.batchnorm.";

bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

bool is_a(const ModuleClass& type, std::string_view name) {
    return type.name == name || std::ranges::find(type.bases, name) != type.bases.end();
}

/// transformers' Conv1D is a linear layer that stores its weight as [in, out].
bool stores_transposed(const ModuleClass& type) {
    return short_name(type.name) == "Conv1D" && !is_a(type, torch_convolution);
}

std::optional<TensorIndex> weight_of(const ModuleTree& tree, ModuleIndex m) {
    const auto names = tree.parameter_names(m);
    const auto tensors = tree.parameters(m);
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] == "weight") {
            return tensors[i];
        }
    }
    return std::nullopt;
}

/// The width that all stacks share is the model's; the others are what an expert computes in between.
void describe_experts(const ModuleTree& tree, std::span<const TensorIndex> tensors, Layer& layer) {
    std::vector<const std::vector<std::int64_t>*> stacks;
    for (const TensorIndex t : tensors) {
        if (tree.tensors[at(t)].shape.size() == 3) {
            stacks.push_back(&tree.tensors[at(t)].shape);
        }
    }
    const std::vector<std::int64_t>& first = *stacks.front();
    layer.experts = first[0];
    const bool shared = std::ranges::all_of(
        stacks, [&](const auto* s) { return (*s)[1] == first[1] || (*s)[2] == first[1]; });
    layer.in = shared ? first[1] : first[2];
    for (const auto* s : stacks) {
        layer.out += (*s)[1] == layer.in ? (*s)[2] : (*s)[1];
    }
}

std::optional<Layer> layer_at(const ModuleTree& tree, ModuleIndex m) {
    const auto tensors = tree.parameters(m);
    if (tensors.empty()) {
        return std::nullopt;
    }
    const ModuleClass& type = tree.class_info(m);
    const std::string_view word = short_name(type.name);
    Layer layer{.row = static_cast<std::int32_t>(m), .kind = LayerKind::other};
    layer.native = type.name.starts_with("torch.nn.");
    layer.trainable = false;
    std::int64_t stacks = 0;
    bool only_vectors = true;  // a bias or a gate of its own: nothing to speak of
    for (const TensorIndex t : tensors) {
        const Tensor& tensor = tree.tensors[at(t)];
        layer.numel += tensor.numel;
        layer.trainable = layer.trainable || tensor.requires_grad;
        stacks += tensor.shape.size() == 3 ? 1 : 0;
        only_vectors = only_vectors && tensor.shape.size() <= 1;
    }
    const std::optional<TensorIndex> weight = weight_of(tree, m);
    const std::vector<std::int64_t> shape =
        weight ? tree.tensors[at(*weight)].shape : std::vector<std::int64_t>{};
    if (is_a(type, torch_convolution) && shape.size() >= 3) {
        layer.kind = LayerKind::convolution;
        layer.in = shape[1];
        layer.out = shape[0];
    } else if (is_a(type, torch_embedding) || (contains(word, "Embedding") && shape.size() == 2)) {
        layer.kind = LayerKind::embedding;
        layer.in = shape.size() == 2 ? shape[0] : 0;
        layer.out = shape.size() == 2 ? shape[1] : 0;
    } else if (contains(word, "Norm") && shape.size() == 1) {
        layer.kind = LayerKind::norm;
        layer.native = type.name.starts_with(torch_norms) || type.name.starts_with(torch_batch_norm);
        layer.in = layer.out = shape[0];
    } else if (shape.size() == 2) {
        layer.kind = LayerKind::linear;
        const bool transposed = stores_transposed(type);
        layer.in = transposed ? shape[0] : shape[1];
        layer.out = transposed ? shape[1] : shape[0];
    } else if (stacks >= 2 || (stacks == 1 && contains(word, "Expert"))) {
        layer.kind = LayerKind::fused_experts;
        describe_experts(tree, tensors, layer);
    } else if (only_vectors) {
        return std::nullopt;
    }
    return layer;
}

/// A list of many equal children beside a router with one row for each of them: experts as modules.
std::vector<std::int64_t> experts_by_row(const ModuleTree& tree) {
    std::vector<std::int64_t> experts(tree.size(), 1);
    for (std::size_t m = 0; m < tree.size(); ++m) {
        const auto module = static_cast<ModuleIndex>(m);
        for (const ModuleIndex list : tree.children(module)) {
            const auto members = tree.children(list);
            const auto count = static_cast<std::int64_t>(members.size());
            if (count < 2 || !tree.parameters(list).empty()) {
                continue;
            }
            const bool alike = std::ranges::all_of(members, [&](ModuleIndex e) {
                return tree.shape[at(e)] == tree.shape[at(members.front())] && tree.numel[at(e)] > 0;
            });
            const bool routed = std::ranges::any_of(tree.children(module), [&](ModuleIndex router) {
                const std::optional<TensorIndex> weight = weight_of(tree, router);
                return router != list && weight && tree.tensors[at(*weight)].shape.size() == 2 &&
                       tree.tensors[at(*weight)].shape[0] == count;
            });
            if (alike && routed) {
                const auto begin = static_cast<std::ptrdiff_t>(at(list));
                const auto end = static_cast<std::ptrdiff_t>(tree.subtree_end[at(list)]);
                std::fill(experts.begin() + begin, experts.begin() + end, count);
            }
        }
    }
    return experts;
}

/// The module that a linear layer belongs to: peft wraps a layer into one of its own, which counts as the
/// layer.
std::int32_t holder(const ModuleTree& tree, std::int32_t row) {
    const std::int32_t parent = tree.parent[static_cast<std::size_t>(row)];
    if (parent < 0) {
        return row;
    }
    const auto names = tree.child_names(static_cast<ModuleIndex>(parent));
    const bool wrapped = std::ranges::find(names, "base_layer") != names.end();
    return wrapped && tree.parent[static_cast<std::size_t>(parent)] >= 0
               ? tree.parent[static_cast<std::size_t>(parent)]
               : parent;
}

void describe(LinearGroup& group, const ModelShape& shape, const ModuleTree& tree) {
    const auto layer = [&](std::size_t i) -> const Layer& { return shape.layers[group.members[i]]; };
    const std::size_t count = group.members.size();
    const Layer& first = layer(0);
    const Layer& last = layer(count - 1);
    const std::string_view word =
        short_name(tree.classes[at(tree.class_of[static_cast<std::size_t>(group.row)])].name);
    group.attention = contains(word, "Attention") || contains(word, "Attn");
    const bool same_input =
        std::ranges::all_of(group.members, [&](std::size_t m) { return shape.layers[m].in == first.in; });
    // q, k and v alone all read the block's input; a fourth layer, or a second one, projects back.
    group.projects_back = count >= 2 && (!same_input || count != 3 || !group.attention);
    group.inner = group.projects_back ? last.in : (group.attention ? first.out : 0);
    if (!group.projects_back || group.attention) {
        return;
    }
    std::size_t branches = 0;
    for (std::size_t i = 0; i + 1 < count; ++i) {
        branches += layer(i).out == last.in ? std::size_t{1} : std::size_t{0};
    }
    group.gated = branches >= 2 || (count == 2 && first.out == 2 * last.in);
}

/// The widest layer as wide as the largest embedding table, give or take padding; not inside a block.
std::optional<std::size_t> head_of(const ModelShape& shape) {
    std::int64_t vocabulary = 0;
    for (const Layer& layer : shape.layers) {
        vocabulary = layer.kind == LayerKind::embedding ? std::max(vocabulary, layer.in) : vocabulary;
    }
    std::optional<std::size_t> head;
    for (std::size_t i = 0; i < shape.layers.size(); ++i) {
        const Layer& layer = shape.layers[i];
        const bool in_block = std::ranges::any_of(shape.blocks, [&](const auto& block) {
            return layer.row >= block.first && layer.row < block.second;
        });
        if (layer.kind != LayerKind::linear || in_block || vocabulary == 0 || layer.out * 2 < vocabulary) {
            continue;
        }
        if (!head || layer.out > shape.layers[*head].out) {
            head = i;
        }
    }
    return head;
}

}  // namespace

ModelShape shape_of(const ModuleTree& tree) {
    ModelShape shape;
    const std::vector<std::int64_t> experts = experts_by_row(tree);
    std::map<std::int32_t, std::size_t> group_of;
    const ClassSet blocks(tree, block_classes(tree));
    std::int32_t block_end = 0;
    for (std::size_t m = 0; m < tree.size(); ++m) {
        const auto module = static_cast<ModuleIndex>(m);
        const auto row = static_cast<std::int32_t>(m);
        if (row >= block_end && m > 0 && blocks.matches(tree, module)) {
            block_end = tree.subtree_end[m];
            shape.blocks.push_back({row, block_end});
        }
        std::optional<Layer> layer = layer_at(tree, module);
        if (!layer) {
            continue;
        }
        if (layer->kind != LayerKind::fused_experts) {
            layer->experts = experts[m];
        }
        shape.has_experts = shape.has_experts || layer->experts > 1;
        shape.has_convolutions = shape.has_convolutions || layer->kind == LayerKind::convolution;
        shape.has_unknown = shape.has_unknown || (layer->kind == LayerKind::other && layer->numel > 0);
        if (layer->kind == LayerKind::linear) {
            const std::int32_t at_row = holder(tree, row);
            const auto [found, added] = group_of.try_emplace(at_row, shape.groups.size());
            if (added) {
                shape.groups.push_back({.row = at_row, .members = {}});
            }
            shape.groups[found->second].members.push_back(shape.layers.size());
        }
        shape.layers.push_back(*layer);
    }
    shape.head = head_of(shape);
    for (LinearGroup& group : shape.groups) {
        if (shape.head) {
            std::erase(group.members, *shape.head);
        }
    }
    std::erase_if(shape.groups, [](const LinearGroup& group) { return group.members.empty(); });
    for (LinearGroup& group : shape.groups) {
        describe(group, shape, tree);
    }
    return shape;
}

}  // namespace fsdplan
