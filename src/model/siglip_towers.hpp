#pragma once

#include "model/two_towers.hpp"

// The towers of SigLIP, for the model of both and for each alone.
namespace fsdplan::siglip_towers {

inline constexpr TowerFamily family{
    .classes = {{"transformers.models.siglip.modeling_siglip", "SiglipPreTrainedModel"}, "Siglip"},
    .act = "gelu_pytorch_tanh",
    .norm_first = true,
    .checks_heads = false,
    .class_token = false,
    .text = {.hidden = 768, .intermediate = 3072, .layers = 12, .heads = 12},
    .vision = {.hidden = 768, .intermediate = 3072, .layers = 12, .heads = 12},
    .vocab = 32000,
    .positions = 64,
    .patch = 16,
};
inline constexpr std::string_view no_split[]{"SiglipTextEmbeddings", "SiglipVisionEmbeddings",
                                             "SiglipEncoderLayer", "SiglipMultiheadAttentionPoolingHead"};

/// SiglipTextModel and SiglipVisionModel; the latter returns the width of its states.
void text_model(const Config& config, const Place& place);
std::int64_t vision_model(const Config& config, const Place& place);

}  // namespace fsdplan::siglip_towers
