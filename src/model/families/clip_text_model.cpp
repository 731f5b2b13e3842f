#include <array>

#include "model/clip_towers.hpp"
#include "model/config_fields.hpp"

namespace fsdplan::builtin::family {
namespace {

void with_projection(const Config& config, const Place& place) {
    const Scope root = place.create(clip_towers::family.classes.pretrained("TextModelWithProjection"));
    const std::int64_t width = clip_towers::text_model(config, Place(root, "text_model"));
    linear(root, "text_projection", width, whole(config, {"projection_dim"}, 512), false);
}

constexpr std::array<std::string_view, 1> model_types{"clip_text_model"};
constexpr std::array architectures{
    Architecture{"CLIPTextModel",
                 [](const Config& config, const Place& place) { clip_towers::text_model(config, place); }},
    Architecture{"CLIPTextModelWithProjection", with_projection},
};

}  // namespace

extern const FamilyInfo clip_text_model;
constinit const FamilyInfo clip_text_model{
    .model_types = model_types,
    .architectures = architectures,
    .backbone = "CLIPTextModel",
    .no_split_classes = clip_towers::no_split,
    .longest_sequence = longest_by_positions,
};

}  // namespace fsdplan::builtin::family
