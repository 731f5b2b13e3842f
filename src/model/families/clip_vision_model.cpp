#include <array>

#include "model/clip_towers.hpp"
#include "model/config_fields.hpp"

namespace fsdplan::builtin::family {
namespace {

void with_projection(const Config& config, const Place& place) {
    const Scope root = place.create(clip_towers::family.classes.pretrained("VisionModelWithProjection"));
    const std::int64_t width = clip_towers::vision_model(config, Place(root, "vision_model"));
    linear(root, "visual_projection", width, whole(config, {"projection_dim"}, 512), false);
}

constexpr std::array<std::string_view, 1> model_types{"clip_vision_model"};
constexpr std::array architectures{
    Architecture{"CLIPVisionModel",
                 [](const Config& config, const Place& place) { clip_towers::vision_model(config, place); }},
    Architecture{"CLIPVisionModelWithProjection", with_projection},
};

}  // namespace

extern const FamilyInfo clip_vision_model;
constinit const FamilyInfo clip_vision_model{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "CLIPVisionModel",
    .no_split_classes = clip_towers::no_split,
    .longest_sequence = [](const Config& config) { return image_tokens(config, true); },
};

}  // namespace fsdplan::builtin::family
