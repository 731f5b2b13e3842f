#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fsdplan/model.hpp"

// What a module tree says about the computation, as far as class names and shapes go.
namespace fsdplan {

enum class LayerKind : std::uint8_t {
    linear,
    embedding,
    norm,
    fused_experts,  ///< experts as slices of three-dimensional parameters
    convolution,
    other,  ///< parameters of a class that is not known here
};

struct Layer {
    std::int32_t row = 0;  ///< of the tree
    LayerKind kind{};
    bool native = false;  ///< torch's own class rather than a model's
    bool trainable = true;
    std::int64_t in = 0;       ///< width of the input; of a norm, its width
    std::int64_t out = 0;      ///< width of the output; of fused experts, the sum of their inner widths
    std::int64_t numel = 0;    ///< elements of its parameters
    std::int64_t experts = 1;  ///< a token visits `experts_per_token` of so many
};

/// Linear layers side by side in one module, and what they add up to.
struct LinearGroup {
    std::int32_t row = 0;              ///< of the module that holds them
    std::vector<std::size_t> members;  ///< indices into ModelShape::layers, in registration order
    bool attention = false;
    bool projects_back = false;  ///< the last one returns to the residual stream: nobody saves its output
    bool gated = false;          ///< an activation is multiplied with a second branch
    std::int64_t inner = 0;      ///< width of what the last one reads: heads, or the hidden layer
};

struct ModelShape {
    std::vector<Layer> layers;  ///< by row
    std::vector<LinearGroup> groups;
    std::optional<std::size_t> head;  ///< the layer whose output is a vocabulary wide
    std::vector<std::pair<std::int32_t, std::int32_t>> blocks;  ///< row ranges of the repeated blocks
    bool has_convolutions = false;
    bool has_unknown = false;
    bool has_experts = false;
};

ModelShape shape_of(const ModuleTree& tree);

}  // namespace fsdplan
