#pragma once

#include "model/two_towers.hpp"

// The towers of CLIP, for the model of both and for each alone.
namespace fsdplan::clip_towers {

inline constexpr TowerFamily family{
    .classes = {{"transformers.models.clip.modeling_clip", "CLIPPreTrainedModel"}, "CLIP"},
    .act = "quick_gelu",
    .norm_first = false,
    .checks_heads = true,
    .class_token = true,
    .text = {.hidden = 512, .intermediate = 2048, .layers = 12, .heads = 8},
    .vision = {.hidden = 768, .intermediate = 3072, .layers = 12, .heads = 12},
    .vocab = 49408,
    .positions = 77,
    .patch = 32,
};
inline constexpr std::string_view no_split[]{"CLIPTextEmbeddings", "CLIPEncoderLayer",
                                             "CLIPVisionEmbeddings"};

/// CLIPTextModel and CLIPVisionModel; each returns the width of its states.
std::int64_t text_model(const Config& config, const Place& place);
std::int64_t vision_model(const Config& config, const Place& place);

}  // namespace fsdplan::clip_towers
