#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "model/family.hpp"

// Models of a text and an image tower in CLIP's shape: clip, siglip. Each tower is a model of its own too.
namespace fsdplan {

struct TowerDefaults {
    std::int64_t hidden, intermediate, layers, heads;
};

struct TowerFamily {
    PrefixedClasses classes;
    std::string_view act;  ///< class default of hidden_act
    bool norm_first;       ///< whether a layer registers each norm before the part behind it
    bool checks_heads;     ///< the configuration checks that heads divide the width, not only each attention
    bool class_token;      ///< an image starts with a token of its own, and patches have no bias
    TowerDefaults text, vision;
    std::int64_t vocab, positions, patch;
};

struct TowerSizes {
    /// `defaults` is one of the family's.
    TowerSizes(const TowerFamily& family, const TowerDefaults& defaults, const Config& config);

    std::int64_t hidden, intermediate, layers, heads;
    std::string act;
};

/// The children "embeddings" of a tower.
void text_embeddings(const TowerFamily& family, const TowerSizes& sizes, const Config& config, Scope tower);
void vision_embeddings(const TowerFamily& family, const TowerSizes& sizes, const Config& config, Scope tower);
/// The child "encoder".
void tower_encoder(const TowerFamily& family, const TowerSizes& sizes, Scope tower);

/// Tokens that an image becomes, when the configuration says how large it is: patches, and the class token.
std::optional<std::int64_t> image_tokens(const Config& config, bool class_token);

}  // namespace fsdplan
